"""Sampled sequences as a file, whenever somebody who looks at the run's folder asks for them."""

import base64
import contextlib
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from learner.learning.look import Look
from learner.reporting.json_lines import plain
from learner.reporting.status import ASK, SEQUENCES
from seedrl.agents.window import WindowSpec
from seedrl.types import Tree

_logger = logging.getLogger(__name__)

MOST_SEQUENCES = 4
_MOST_BYTES = 8 * 2**20


class Source(NamedTuple):
    """Where sequences come from.

    Attributes:
      look: `N -> Look`, or None if replay cannot answer yet; raises ValueError if it never can.
      holders: which env server has which stream now.
      window: of the agent.
      step_bytes: of a stored step.
      num_slots: of the run; a stream's slot is its number modulo that.
    """

    look: Callable[[int], Look | None]
    holders: Callable[[], Mapping[int, str]]
    window: WindowSpec
    step_bytes: int
    num_slots: int


class SequencesOnRequest:
    """Writes `sequences.json` when the file `ask_sequence` appears in the run's folder.

    Owns a thread while it does: sampling is compiled first.
    """

    def __init__(self, workdir: Path):
        self._workdir = workdir
        self._thread: threading.Thread | None = None

    def answer(self, source: Callable[[], Source]) -> None:
        """Looks whether somebody has asked, and begins to answer; to be called once a second."""
        if self._thread is not None and self._thread.is_alive():
            return
        try:
            os.unlink(self._workdir / ASK)
        except OSError:
            return
        self._thread = threading.Thread(
            target=self._write, args=(source(),), name="sequences", daemon=True
        )
        self._thread.start()

    def _write(self, source: Source) -> None:
        try:
            text = _text(_found(source))
        except ValueError as error:
            text = _text({"problem": str(error)})
        except Exception:
            _logger.exception("sequences could not be sampled")
            text = _text({"problem": "sampling failed; the learner's log has the reason"})
        new = self._workdir / f".{SEQUENCES}.new"
        with contextlib.suppress(OSError):
            new.write_text(text)
            os.replace(new, self._workdir / SEQUENCES)


def _text(found: Mapping[str, Any]) -> str:
    return json.dumps(plain({"time_seconds": time.time(), **found}), allow_nan=False)


def _found(source: Source) -> dict[str, Any]:
    bytes_each = source.window.length * max(1, source.step_bytes)
    look = source.look(max(1, min(MOST_SEQUENCES, _MOST_BYTES // bytes_each)))
    if look is None:
        raise ValueError("replay holds no sequence yet")
    holders = source.holders()
    return {
        "updates": look.updates,
        "burn_in": source.window.burn_in,
        "unroll": source.window.unroll,
        "sequences": [
            {
                # A stream that was restored with a checkpoint is not known.
                "slot": stream % source.num_slots if stream >= 0 else None,
                "env_server": holders.get(stream, ""),
                **described(look, number),
            }
            for number, stream in enumerate(look.streams)
        ],
    }


def described(look: Look, number: int) -> dict[str, Any]:
    """One of the sequences as JSON: rows in lists, observations as bytes in base64."""
    timestep, action, version, extras = look.steps
    rows = {
        "step_type": timestep.step_type,
        "reward": timestep.reward,
        "discount": timestep.discount,
        "action": action,
        "version": version,
    }
    return {
        "about": {name: values[number] for name, values in look.about.items()},
        **{name: leaf[:, number] for name, leaf in rows.items()},
        "extras": {name: leaf[:, number] for name, leaf in leaves(extras)},
        "observation": {
            name: _packed(leaf[:, number]) for name, leaf in leaves(timestep.observation)
        },
    }


def _packed(rows: np.ndarray) -> dict[str, Any]:
    kind = rows.dtype.newbyteorder("<")
    data = base64.b64encode(np.ascontiguousarray(rows, kind).tobytes()).decode()
    return {"dtype": rows.dtype.name, "shape": rows.shape, "data": data}


def leaves(tree: Tree, name: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """The arrays of a tree with the names that lead to them, joined by dots."""
    if isinstance(tree, Mapping):
        items = list(tree.items())
    elif isinstance(tree, tuple | list):
        fields = getattr(tree, "_fields", range(len(tree)))
        items = list(zip(fields, tree, strict=True))
    else:
        yield name, np.asarray(tree)
        return
    for key, item in items:
        yield from leaves(item, f"{name}.{key}" if name else str(key))
