"""A run's scalars on Weights & Biases, by its own client."""

import logging
import queue
import threading
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from seedrl import run_files

_CLOSE_SECONDS = 10.0
_STEP = "balance/env_steps"  # is among the scalars of every interval

_logger = logging.getLogger(__name__)


class WeightsAndBiases:
    """Mirrors scalars to a project; a `Writer`. Only its own thread waits for the network.

    A run that is resumed continues there too. If the service cannot be reached or refuses, that is
    one warning, and the run continues: the same values are in `metrics.jsonl`.
    """

    def __init__(self, project: str, workdir: Path, config: Mapping[str, Any]):
        """`config`: the configuration by field, by which runs are compared there."""
        self._has_ended = False
        self._work: queue.SimpleQueue[Callable[[Any], object] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(
            target=self._run, args=(project, workdir, dict(config)), name="wandb", daemon=True
        )
        self._thread.start()

    def add(self, scalars: Mapping[str, float], step: int) -> None:
        """Sends scalars by their tags."""
        # No `step`: after a resume environment steps may step back once; it drops such values.
        values = dict(scalars)
        self._do(lambda run: run.log(values))

    def close(self) -> None:
        """Waits ten seconds at most until all is sent."""
        self._work.put(None)
        self._thread.join(_CLOSE_SECONDS)

    def _do(self, work: Callable[[Any], object]) -> None:
        if not self._has_ended:  # else the queue would grow for ever
            self._work.put(work)

    def _run(self, project: str, workdir: Path, config: dict[str, Any]) -> None:
        try:
            import wandb

            run = wandb.init(
                project=project,
                name=workdir.name,
                id=_identity(workdir),
                dir=str(workdir),
                resume="allow",
                # The terminal is ours.
                settings=wandb.Settings(console="off", silent=True),
            )
            run.config.update(config, allow_val_change=True)
            run.define_metric("*", step_metric=_STEP)
            while (work := self._work.get()) is not None:
                work(run)
            run.finish()
        except Exception as error:
            self._has_ended = True
            _logger.warning("nothing more goes to Weights & Biases: %s", error)


def _identity(workdir: Path) -> str:
    """The run's id there, the same in all of its sessions."""
    path = workdir / run_files.WANDB_ID
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        identity = uuid.uuid4().hex[:12]
        path.write_text(identity + "\n")
        return identity
