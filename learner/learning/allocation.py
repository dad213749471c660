"""Whether parameters and an update fit a device, known before they are made or run."""

from typing import Any

import jax

from seedrl.errors import ConfigError
from seedrl.replay.experience import Scale
from seedrl.types import Tree


def update_bytes(compiled: Any) -> int | None:
    """What a compiled program needs on each device at its worst; None if that is not known.

    Its arguments with the replay, what it computes in between, and those results that do not take
    an argument's place. Programs that act need little beside it.
    """
    needed = compiled.memory_analysis()
    if needed is None:
        return None
    results = needed.output_size_in_bytes - needed.alias_size_in_bytes
    return int(needed.argument_size_in_bytes + results + needed.temp_size_in_bytes)


def require_update_memory(compiled: Any, scale: Scale, pages_bytes: int) -> None:
    """Raises ConfigError if the compiled update needs more than a device has.

    Without that the first update would fail, an hour after the start where replay fills slowly.

    Args:
      pages_bytes: of pages on their way to replay, which the device may hold, too.
    """
    needed = update_bytes(compiled)
    if needed is None or (wanted := needed + pages_bytes) <= scale.device_bytes:
        return
    raise ConfigError(
        f"learning.batch_sequences: an update of {scale.batch_per_device} sequences needs "
        f"{wanted / 2**30:.1f} GiB on each device with the replay and the pages on their way, but "
        f"{scale.device_name} has "
        f"{scale.device_bytes / 2**30:.1f} GiB; fewer sequences, a smaller replay or more devices "
        "would fit"
    )


def require_state_memory(shapes: Tree, scale: Scale) -> None:
    """Raises ConfigError if the learner's state, arrays of these shapes, is more than a device has.

    They follow from an observation that an env server has named.
    """
    wanted = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))
    if wanted > scale.device_bytes:
        raise ConfigError(
            f"agent: for this environment its parameters, with all that learns them, need "
            f"{wanted / 2**30:.1f} GiB on each device, but {scale.device_name} has "
            f"{scale.device_bytes / 2**30:.1f} GiB; a smaller network or observation would fit"
        )
