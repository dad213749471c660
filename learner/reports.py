"""Everything that reports on a run, opened and closed together."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from learner.build import StartFrom
from learner.checkpoints.run_folder import RunFolder
from learner.processes.stop import ENV_SERVERS_FAILED
from learner.report.events import Events
from learner.report.learning_curve import draw_within
from learner.report.metrics import Metrics
from learner.report.progress import Progress
from learner.report.status import ERROR, Status
from learner.report.weights_and_biases import WeightsAndBiases
from learner.report.wording import duration
from learner.runtime.watchdog import ExitDeadline
from learner.schedule import Session
from learner.serving.hub import Hub
from learner.status_writer import StatusWriter
from seedrl.checkpoints import Checkpoint, best_return, holds_best
from seedrl.config import Config
from seedrl.config_io import fields_of
from seedrl.errors import UserError

_CLOSE_SECONDS = 60.0


class Reports(NamedTuple):
    """The terminal, numbers over time, events, and the present state."""

    progress: Progress
    metrics: Metrics
    events: Events
    live: StatusWriter

    def starts_from(self, start: StartFrom, replay: str = "") -> None:
        """Reports the checkpoint that the run continues from, or whose parameters it takes over.

        `replay`: what happens to the saved replay, unless that is only restored.
        """
        if (checkpoint := start.checkpoint) is not None:
            age = time.time() - checkpoint.path.stat().st_mtime
            env_steps = checkpoint.meta["env_steps"]
            if "replay_indices" in checkpoint.meta:
                replay = replay or "its replay is restored"
            else:
                replay = "replay starts empty (--checkpoint-replay saves it too)"
            self.events.report(
                "resumed",
                f"resuming from update {checkpoint.step:,} and {env_steps:,} environment steps, "
                f"saved {duration(age)} ago in {checkpoint.path}; {replay}",
                updates=checkpoint.step,
                path=str(checkpoint.path),
                env_steps=env_steps,
                age_seconds=age,
            )
        elif (initial := start.initial) is not None:
            which = f"the parameters of update {initial.step:,}"
            if holds_best(initial):
                which = f"the best parameters ({best_return(initial):.4g}, update {initial.step:,})"
            self.events.report(
                "resumed",
                f"starting with {which} in {initial.path}",
                updates=initial.step,
                path=str(initial.path),
            )

    def started(self, hub: Hub, address: str, folder: Path, devices: str) -> None:
        """Reports where the run serves, and from now on which env servers there are."""
        self.live.hub, self.live.address = hub, address
        text = f"learner: {folder}, serving {address}, {devices}"
        self.events.report("started", text, address=address, devices=devices, workdir=str(folder))

    def follow(self, session: Session) -> None:
        """From now on status and events show what this session has done."""
        self.live.session = session
        self.events.count_steps = lambda: session.acting.training_steps

    def compiling(self, replay_bytes: int) -> None:
        """Reports that compilation starts."""
        self.live.compiling_since = time.monotonic()
        size = f"{replay_bytes / 2**20:.0f} MiB"
        text = f"replay: {size} on each device; compiling acting, then learning"
        self.events.report("learning", text, replay_bytes=replay_bytes)

    def end(self, reason: str, remark: str = "") -> None:
        """Reports that the run ends now and only has to be saved; `remark` is for its user."""
        self.live.stopping(reason)
        # `seedrl train` has printed the failure of its env servers already.
        is_known = reason.startswith(ENV_SERVERS_FAILED)
        shown = ENV_SERVERS_FAILED if is_known else f"{reason}{remark}"
        self.events.report("ended", f"the run ends: {shown}", reason=reason)

    def draw_curve(self, config: Config, folder: RunFolder, seconds: float) -> None:
        """Draws the learning curve, if the run is configured to; that may take `seconds`.

        All is saved by then: a full disk or a busy machine costs the picture only.
        """
        if not config.logging.learning_curve:
            return
        reason = draw_within(
            seconds,
            folder.metrics,
            folder.path / "learning_curve.png",
            title=f"{self.live.name}, seed {config.seed}",
            target=config.evaluation.target_return,
        )
        if reason:
            self.progress.log(f"cannot draw the learning curve: {reason}")


@contextlib.contextmanager
def open_reports(
    config: Config, name: str, folder: RunFolder, checkpoint: Checkpoint | None
) -> Iterator[Reports]:
    """Opens the reports on a run called `name`; those of a resumed run continue where it was saved.

    Without a checkpoint, earlier attempts in the folder do not count.
    """
    env_steps, totals = 0, dict[str, float]()
    if checkpoint is not None:
        env_steps, totals = int(checkpoint.meta["env_steps"]), checkpoint.meta["totals"]
    elapsed = totals.get("elapsed_seconds", 0.0)
    project = config.logging.wandb
    with contextlib.ExitStack() as ending, contextlib.ExitStack() as stack:
        progress = stack.enter_context(contextlib.closing(Progress()))
        metrics = Metrics(
            folder.path,
            mirrors=[]
            if project is None
            else [WeightsAndBiases(project, folder.path, fields_of(config))],
            totals=totals,
            # A value at the step of the checkpoint itself still holds.
            purge_step=0 if checkpoint is None else env_steps + 1,
        )
        stack.callback(metrics.close)
        events = Events(folder.path, progress.show, elapsed_seconds=elapsed, env_steps=env_steps)
        stack.callback(events.close)
        show = _shown(config, progress, stack)
        live = StatusWriter(config, name, folder.path, events=events, metrics=metrics, show=show)
        stack.callback(live.close)
        try:
            yield Reports(progress, metrics, events, live)
        except UserError as error:
            live.stopping(f"{ERROR}: {error}")
            raise
        finally:
            # All is saved by now: closing the reports must not keep the process alive.
            ending.enter_context(ExitDeadline(_CLOSE_SECONDS, "all is saved; the rest did not end"))


def _shown(
    config: Config, progress: Progress, stack: contextlib.ExitStack
) -> Callable[[Status], None]:
    """Where every status goes: the terminal, and monitoring if it is configured."""
    if not config.logging.health_bind:
        return progress.look
    from learner.report.health import Health

    health = stack.enter_context(Health(config.logging.health_bind))

    def look(status: Status) -> None:
        health.look(status)
        progress.look(status)

    return look
