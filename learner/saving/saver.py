"""Checkpoints of a run: what goes in, written by a thread of its own, and what comes out."""

import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np

from learner.acting.loop import ActingSnapshot
from learner.learning.learn_step import LearnerState
from learner.learning.snapshot import Snapshot
from learner.serving.core import Serving
from seedrl import checkpoints
from seedrl.config import Config
from seedrl.config_json import from_json
from seedrl.config_tree import difference
from seedrl.errors import CheckpointError
from seedrl.replay.replay import ReplayState

_logger = logging.getLogger(__name__)

Saved = TypeVar("Saved", bound=Any)


class Saver:
    """Writes snapshots in the background, one at a time. The main thread owns it."""

    def __init__(self, directory: Path, keep: int):
        self._directory = directory
        self._keep = keep
        self._thread: threading.Thread | None = None
        self.failure: Exception | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a save is under way."""
        return self._thread is not None and self._thread.is_alive()

    def start(self, snapshot: Snapshot, meta: Mapping[str, Any]) -> None:
        """Starts a save; waits for the one before it."""
        self.wait()
        self._thread = threading.Thread(
            target=self._save, args=(snapshot, dict(meta)), name="saver", daemon=True
        )
        self._thread.start()

    def wait(self) -> None:
        """Waits until the save that is under way, if any, is durable or has failed."""
        if self._thread is not None:
            self._thread.join()

    def _save(self, snapshot: Snapshot, meta: dict[str, Any]) -> None:
        extra = _prefixed("replay.", snapshot.replay) | _prefixed("acting.", snapshot.acting)
        if snapshot.replay:
            meta["replay_indices"] = snapshot.indices
        step = int(snapshot.state.updates)
        try:
            path = checkpoints.save(
                self._directory,
                step,
                snapshot.state._asdict(),
                meta,
                keep=self._keep,
                extra=extra,
            )
            self.failure = None
            _logger.info("saved %s", path)
        except CheckpointError as error:
            # Training goes on: the disk may be freed. The end of the run reports what is missing.
            self.failure = error
            _logger.error("%s", error)
        except Exception as error:
            # A defect of ours. This thread must not die alone: the end of the run raises it.
            self.failure = error
            _logger.exception("saving failed")


def _prefixed(prefix: str, tree: Any) -> dict[str, np.ndarray]:
    return {prefix + name: leaf for name, leaf in _named_leaves(tree).items()}


def _named_leaves(tree: Any) -> dict[str, np.ndarray]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}


def restore_state(
    checkpoint: checkpoints.Checkpoint, abstract: LearnerState, config: Config
) -> LearnerState:
    """The saved learner state. Raises CheckpointError, by config field, if it does not fit."""
    try:
        return LearnerState(**checkpoints.restore(checkpoint, abstract._asdict()))
    except CheckpointError as error:
        raise by_field(error, checkpoint, config, ("agent",)) from error


def by_field(
    error: CheckpointError,
    checkpoint: checkpoints.Checkpoint,
    config: Config,
    sections: tuple[str, ...],
) -> CheckpointError:
    """`error` told by the fields of `sections` that have changed since; as it is if none has."""
    saved = from_json(checkpoint.meta["config"])
    fields = [line for line in difference(saved, config) if line.startswith(sections)]
    if not fields:
        return CheckpointError(str(error))
    return CheckpointError(
        f"{checkpoint.path} does not fit this config: {'; '.join(fields)}; start a new workdir "
        "or restore the config"
    )


def restore_replay(checkpoint: checkpoints.Checkpoint, abstract: ReplayState) -> ReplayState | None:
    """The saved replay, or None if none was saved. Raises CheckpointError if it does not fit."""
    if "replay_indices" not in checkpoint.meta:
        return None
    return _restore_extra(checkpoint, "replay", abstract)


def streams_go_on(config: Config, checkpoint: checkpoints.Checkpoint) -> bool:
    """Whether streams of experience can go on where they were: in lock step before and after."""
    return config.learning.regime == "lock_step" and "streams" in checkpoint.meta


def restore_streams(checkpoint: checkpoints.Checkpoint, serving: Serving, config: Config) -> None:
    """Lets streams go on where they were, if they can. Raises CheckpointError for other slots."""
    if not streams_go_on(config, checkpoint):
        return
    try:
        serving.restore(checkpoint.meta["streams"])
    except ValueError as error:
        raise by_field(
            CheckpointError(f"{checkpoint.path}: {error}; restore the config"),
            checkpoint,
            config,
            ("serving.training_slots",),
        ) from error


def restore_acting(
    checkpoint: checkpoints.Checkpoint, abstract: ActingSnapshot, config: Config
) -> ActingSnapshot:
    """Acting's part of a checkpoint in lock step. Raises CheckpointError if it does not fit."""
    try:
        return _restore_extra(checkpoint, "acting", abstract)
    except CheckpointError as error:
        sections = ("agent", "serving.training_slots", "replay.page_steps")
        raise by_field(error, checkpoint, config, sections) from error


def _restore_extra(checkpoint: checkpoints.Checkpoint, part: str, abstract: Saved) -> Saved:
    saved = checkpoints.restore_extra(checkpoint, prefix=f"{part}.")
    for name, leaf in _named_leaves(abstract).items():
        found = saved.get(f"{part}.{name}")
        if found is None or found.shape != leaf.shape or found.dtype != leaf.dtype:
            got = "nothing" if found is None else f"{found.dtype}{list(found.shape)}"
            raise CheckpointError(
                f"{part} {name}: expected {leaf.dtype}{list(leaf.shape)}, {checkpoint.path} has "
                f"{got}; restore the config or start a new workdir"
            )
    leaves = [saved[f"{part}.{name}"] for name in _named_leaves(abstract)]
    restored: Saved = jax.tree.unflatten(jax.tree.structure(abstract), leaves)
    return restored
