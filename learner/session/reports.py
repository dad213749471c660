"""Through what a run says something of itself, opened and closed together."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from learner.processes.stop import ENV_SERVERS_FAILED
from learner.reporting.events import Events
from learner.reporting.learning_curve import draw_apart
from learner.reporting.metrics import Metrics, elapsed_seconds
from learner.reporting.progress import Progress
from learner.reporting.status import ERROR, Status
from learner.reporting.wording import duration
from learner.reporting.writers.weights_and_biases import WeightsAndBiases
from learner.saving.run_folder import RunFolder
from learner.session.live_status import LiveStatus
from learner.threads.exit_deadline import ExitDeadline
from seedrl.checkpoints import Checkpoint, best_return, holds_best
from seedrl.config import Config
from seedrl.errors import UserError

_CLOSE_SECONDS = 60.0


class Reports(NamedTuple):
    """What a person sees, numbers over time, what happens, and what is the case now."""

    progress: Progress
    metrics: Metrics
    events: Events
    live: LiveStatus

    def resumed(
        self, checkpoint: Checkpoint | None, best: Checkpoint | None = None, *, replay: str = ""
    ) -> None:
        """The run continues from a checkpoint, or begins again beside the best one, if there is.

        `replay`: what becomes of its replay, where that is not only restored.
        """
        if checkpoint is None:
            self._begins_beside(best)
            return
        age = time.time() - checkpoint.path.stat().st_mtime
        env_steps = checkpoint.meta["env_steps"]
        has_replay = "replay_indices" in checkpoint.meta
        begins_empty = "; replay begins empty (--checkpoint-replay saves it too)"
        replay = f"; {replay or 'its replay is restored'}" if has_replay else begins_empty
        self.events.say(
            "resumed",
            f"resumes from update {checkpoint.step:,} and {env_steps:,} environment steps, saved "
            f"{duration(age)} ago in {checkpoint.path}{replay}",
            updates=checkpoint.step,
            env_steps=env_steps,
            age_seconds=age,
            path=str(checkpoint.path),
        )

    def _begins_beside(self, best: Checkpoint | None) -> None:
        if best is None:
            return
        score = best_return(best)
        self.events.say(
            "begins_beside_best",
            "begins again, for the session before was ended before its first checkpoint; its best "
            f"parameters, {score:.4g} after {best.step:,} updates, stay in {best.path} until a "
            "round scores higher",
            updates=best.step,
            mean_return=score,
            path=str(best.path),
        )

    def begins_with(self, initial: Checkpoint | None) -> None:
        """The run has taken over the parameters of another run's checkpoint, if there is one."""
        if initial is None:
            return
        which = f"the parameters of update {initial.step:,}"
        if holds_best(initial):
            score = best_return(initial)
            which = f"the best parameters, {score:.4g} after {initial.step:,} updates,"
        self.events.say(
            "initialized",
            f"begins with {which} in {initial.path}",
            updates=initial.step,
            path=str(initial.path),
        )

    def end(self, reason: str, remark: str = "") -> None:
        """The run ends now; what remains is to save. `remark` is what else its user should know."""
        self.live.stopping(reason)
        # What has failed of the env servers, `seedrl train` has just said.
        is_known = reason.startswith(ENV_SERVERS_FAILED)
        shown = ENV_SERVERS_FAILED if is_known else reason
        self.events.say("ended", f"the run ends: {shown}{remark * (not is_known)}", reason=reason)

    def draw_curve(self, config: Config, folder: RunFolder, seconds: float) -> None:
        """Draws the learning curve, if the run shall; that may take `seconds`.

        All is saved by then: a full disk or a busy machine costs the picture alone.
        """
        if not config.logging.learning_curve:
            return
        reason = draw_apart(
            folder.metrics,
            folder.path / "learning_curve.png",
            title=f"{self.live.name}, seed {config.seed}",
            target=config.evaluation.target_return,
            seconds=seconds,
        )
        if reason:
            self.progress.log(f"cannot draw the learning curve: {reason}")


@contextlib.contextmanager
def open_reports(
    config: Config, name: str, folder: RunFolder, checkpoint: Checkpoint | None
) -> Iterator[Reports]:
    """Begins to report on a run called `name`; a run that is resumed goes on where it was saved."""
    with contextlib.ExitStack() as ending, contextlib.ExitStack() as stack:
        progress = stack.enter_context(contextlib.closing(Progress()))
        metrics = stack.enter_context(contextlib.closing(_metrics(config, folder, checkpoint)))
        events = stack.enter_context(contextlib.closing(_events(folder, checkpoint, progress)))
        show = _shown(config, progress, stack)
        live = LiveStatus(config, name, folder.path, events=events, metrics=metrics, show=show)
        stack.callback(live.close)
        try:
            yield Reports(progress, metrics, events, live)
        except UserError as error:
            live.stopping(f"{ERROR}: {error}")
            raise
        finally:
            # What can be saved is saved: closing all this shall not keep the process alive.
            ending.enter_context(ExitDeadline(_CLOSE_SECONDS, "all is saved; the rest did not end"))


def _shown(
    config: Config, progress: Progress, stack: contextlib.ExitStack
) -> Callable[[Status], None]:
    """Who sees every status: the terminal, and monitoring if it is asked for."""
    if not config.logging.health_bind:
        return progress.look
    from learner.reporting.health.endpoint import Health

    health = stack.enter_context(Health(config.logging.health_bind))

    def look(status: Status) -> None:
        health.look(status)
        progress.look(status)

    return look


def _metrics(config: Config, folder: RunFolder, checkpoint: Checkpoint | None) -> Metrics:
    """Resumes where the checkpoint was saved; without one, earlier attempts do not count."""
    project = config.logging.wandb
    mirrors = [] if project is None else [WeightsAndBiases(project, folder.path)]
    if checkpoint is None:
        return Metrics(folder.path, mirrors=mirrors)
    return Metrics(
        folder.path,
        mirrors=mirrors,
        elapsed_seconds=elapsed_seconds(folder.path),
        totals=checkpoint.meta["totals"],
        # What was written at the checkpoint itself still holds.
        purge_step=int(checkpoint.meta["env_steps"]) + 1,
    )


def _events(folder: RunFolder, checkpoint: Checkpoint | None, progress: Progress) -> Events:
    """Resumes as the metrics do."""
    if checkpoint is None:
        return Events(folder.path, progress.show)
    return Events(
        folder.path,
        progress.show,
        elapsed_seconds=elapsed_seconds(folder.path),
        env_steps=int(checkpoint.meta["env_steps"]),
    )
