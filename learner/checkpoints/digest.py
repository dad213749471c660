"""SHA-256 over what a checkpoint holds; `seedrl digest` prints it.

Two runs whose digests are equal have learned the same, to the last bit.
"""

import hashlib
from collections.abc import Mapping

import numpy as np

from seedrl import checkpoints, stored_arrays
from seedrl.errors import CheckpointError

# The parts of a checkpoint, as the first words of the arrays' names.
PARTS = ("params", "target", "optimizer", "extras", "updates", "key", "replay", "acting")


def digests(arrays: Mapping[str, np.ndarray]) -> dict[str, str]:
    """SHA-256 of each part of a checkpoint that `arrays` has, by name, and of `all` together.

    It covers names, shapes, dtypes and every byte. Raises CheckpointError for an array that is of
    no known part: a digest that left it out would be worth nothing.
    """
    parts: dict[str, list[str]] = {part: [] for part in PARTS}
    for name in sorted(arrays):
        part = name.replace("/", ".").split(".")[0]
        if part not in parts:
            raise CheckpointError(f"expected an array of {', '.join(PARTS)}, got {name}")
        array = np.asarray(arrays[name])
        content = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
        parts[part].append(f"{name} {array.dtype} {array.shape} {content}\n")
    lines = {part: "".join(entries) for part, entries in parts.items() if entries}
    lines["all"] = "".join(lines.values())
    return {part: hashlib.sha256(text.encode()).hexdigest() for part, text in lines.items()}


def stored(checkpoint: checkpoints.Checkpoint) -> dict[str, np.ndarray]:
    """All arrays of a checkpoint by name, those of its tree by their path."""
    return stored_arrays.read_all(checkpoint.path) | checkpoints.restore_extra(checkpoint)
