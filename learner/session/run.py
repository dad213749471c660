"""A learner's run from start to end: wiring, pace, and the order in which things stop."""

import contextlib
import faulthandler
import os
import shlex
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from learner.reporting.learning_curve import draw
from learner.reporting.metrics import Metrics, elapsed_seconds
from learner.reporting.progress import Progress
from learner.reporting.summary import Summary
from learner.saving.recorder import Recorder, open_recorder
from learner.saving.run_folder import Resume, RunFolder
from learner.saving.saver import Saver, restore_streams
from learner.serving.core import Serving
from learner.serving.hub import Hub
from learner.serving.leases import SlotTable, session_seed
from learner.serving.server import Service
from learner.session.geometry import plan_geometry
from learner.session.process import stop_on_signals, tune_process
from learner.session.session import Session
from seedrl.checkpoints import Checkpoint
from seedrl.config import Config
from seedrl.config_checks import check
from seedrl.errors import EnvironmentRefusedError, ExitCode
from seedrl.specs import EnvSpec

_TICK_SECONDS = 0.1
_STOP_SECONDS = 120.0

Found = TypeVar("Found")


def train(config: Config, *, workdir: Path, resume: Resume = "auto", command: str = "") -> Summary:
    """Trains until the configured end or SIGTERM; blocks. Writes the run folder.

    Raises a UserError for what the user can put right, RuntimeError if a thread died.
    """
    check(config)
    start = time.monotonic()
    stop = threading.Event()
    stop_on_signals(stop)
    tune_process(keeps_freed_memory=config.learning.keep_freed_memory)
    with contextlib.closing(RunFolder(workdir)) as folder:
        return _train(config, folder, resume=resume, command=command, start=start, stop=stop)


def _train(
    config: Config,
    folder: RunFolder,
    *,
    resume: Resume,
    command: str,
    start: float,
    stop: threading.Event,
) -> Summary:
    geometry = plan_geometry(config)
    checkpoint = folder.checkpoint(resume)
    session_number = folder.record_command(command or shlex.join(sys.argv))
    hub = _hub(config, geometry.page_steps, checkpoint, session_number)
    service = Service(hub, config.serving)
    progress = Progress()
    metrics = _metrics(folder, checkpoint)
    recorder: Recorder | None = None
    try:
        address = service.start()
        progress.log(
            f"learner: {folder.path}, serving {address}, {len(geometry.devices)} x "
            f"{geometry.devices[0].device_kind}"
        )
        spec = _wait(hub.wait_for_spec, hub, stop)
        if spec is None:
            service.stop()
            return _summary(None, None, {}, start, folder.path)
        recorder = open_recorder(config, folder.path, spec, hub.num_batches)
        session = Session(config, geometry, hub, spec, metrics, checkpoint, recorder)
        # With the spec of a checkpoint there may be no env server yet, or another environment:
        # that is told before anything is compiled.
        if not _wait(hub.wait_for_agreement, hub, stop):
            service.stop()
            return _summary(config, session, {}, start, folder.path)
        folder.record_config(config)
        progress.log(
            f"replay: {config.replay.capacity_steps} steps, "
            f"{session.replay_bytes / 2**20:.0f} MiB on each device; compiling"
        )
        session.start()
        saver = Saver(folder.checkpoints, config.checkpoint.keep)
        last = _loop(config, session, service, saver, metrics, progress, stop)
        _end(session, saver, service, stop)
        _raise_failure(session, service, saver, metrics)
        draw(folder.metrics, folder.path / "learning_curve.png")
        return _summary(config, session, last, start, folder.path)
    except BaseException:
        service.stop(grace_seconds=0.0)
        raise
    finally:
        progress.close()
        metrics.close()
        if recorder is not None:
            recorder.close()


def _metrics(folder: RunFolder, checkpoint: Checkpoint | None) -> Metrics:
    """Goes on where the checkpoint was saved; without one, earlier attempts are of no account."""
    if checkpoint is None:
        return Metrics(folder.path)
    return Metrics(
        folder.path,
        elapsed_seconds=elapsed_seconds(folder.path),
        # What was written at the checkpoint itself still holds.
        purge_step=int(checkpoint.meta["env_steps"]) + 1,
    )


def _hub(
    config: Config, page_steps: int, checkpoint: Checkpoint | None, session_number: int
) -> Hub:
    meta = {} if checkpoint is None else checkpoint.meta
    slots = SlotTable(
        training=config.serving.training_slots,
        evaluation=config.serving.evaluation_slots,
        # Nothing that a killed session has not saved may decide on seeds: its own would come again.
        seed=session_seed(config.seed, f"session {session_number}"),
    )
    serving = Serving(
        slots,
        page_steps=page_steps,
        deadline_seconds=config.serving.batch_deadline_seconds,
        is_lock_step=config.learning.lock_step,
    )
    if checkpoint is not None:
        restore_streams(checkpoint, serving, config)
    spec = EnvSpec.from_json(meta["env_spec"]) if "env_spec" in meta else None
    return Hub(serving, config.environment, spec=spec)


def _wait(
    condition: Callable[[float], Found | None], hub: Hub, stop: threading.Event
) -> Found | None:
    """What `condition(timeout)` finds; None if told to stop before. Raises a refusal."""
    while not stop.is_set():
        if found := condition(_TICK_SECONDS):
            return found
        if hub.refusal is not None:
            raise EnvironmentRefusedError(hub.refusal)
    return None


def _loop(
    config: Config,
    session: Session,
    service: Service,
    saver: Saver,
    metrics: Metrics,
    progress: Progress,
    stop: threading.Event,
) -> dict[str, float]:
    """Reports and saves at their intervals until the run ends; returns the last metrics."""
    now = time.monotonic()
    next_log = now + config.logging.interval_seconds
    next_save = now + config.checkpoint.interval_seconds
    last: dict[str, float] = {}
    while not _is_over(config, session, stop) and service.failure is None:
        session.failed.wait(_TICK_SECONDS)
        _end_if_stuck(session, config.logging.stuck_seconds)
        now = time.monotonic()
        if now >= next_log:
            next_log = now + config.logging.interval_seconds
            last = _report(session, metrics, progress)
            if session.residues():
                break  # experience may be mixed up: no more learning from it
        # While learning is compiled nothing changes that is worth another save.
        if now >= next_save and not saver.is_busy and not session.is_compiling:
            next_save = now + config.checkpoint.interval_seconds
            snapshot = session.snapshot()
            if snapshot is not None:
                saver.start(snapshot, session.meta(snapshot))
                metrics.record("checkpoint", updates=int(snapshot.state.updates))
    return last | _report(session, metrics, progress)


def _end_if_stuck(session: Session, seconds: float) -> None:
    """Ends the process at once: nothing can be saved or joined while a thread hangs."""
    names = session.stuck(seconds)
    if names:
        faulthandler.dump_traceback(all_threads=True)
        print(
            f"learner: error: {' and '.join(names)} finished nothing for {seconds:.0f} seconds "
            "(logging.stuck_seconds); all stacks are above",
            file=sys.stderr,
            flush=True,
        )
        os._exit(ExitCode.STUCK)


def _is_over(config: Config, session: Session, stop: threading.Event) -> bool:
    return (
        stop.is_set()
        or session.failed.is_set()
        or session.evaluator.confirmed is not None
        or session.acting.training_steps >= config.learning.total_steps
    )


def _report(session: Session, metrics: Metrics, progress: Progress) -> dict[str, float]:
    session.gauges()
    values = metrics.flush(
        env_steps=session.acting.training_steps, updates=session.learning.updates
    )
    progress.update(values)
    return values


def _end(session: Session, saver: Saver, service: Service, stop: threading.Event) -> None:
    """Stops both threads, saves, and lets the env servers go: for good if training is over."""
    if not session.stop(_STOP_SECONDS):
        raise RuntimeError(
            f"a thread of the learner did not stop within {_STOP_SECONDS:.0f} seconds"
        )
    if not session.failed.is_set():
        snapshot = session.final_snapshot()
        saver.start(snapshot, session.meta(snapshot))
    if stop.is_set() or session.failed.is_set():
        service.stop()
    else:
        service.finish("training is over")
    saver.wait()


def _raise_failure(session: Session, service: Service, saver: Saver, metrics: Metrics) -> None:
    """Raises what has gone wrong in a run that has ended; writes its last accounts."""
    session.raise_failure()
    if service.failure is not None:
        raise RuntimeError(
            f"the thread that reads links died: {service.failure}"
        ) from service.failure
    metrics.record("ledger", **session.accounts())
    if broken := session.residues(at_rest=True):
        raise RuntimeError("; ".join(broken))
    if saver.failure is not None:
        raise saver.failure


def _summary(
    config: Config | None,
    session: Session | None,
    last: dict[str, float],
    start: float,
    workdir: Path,
) -> Summary:
    seconds = time.monotonic() - start
    score = None if session is None else session.acting.last_score
    return Summary(
        mean_return=None if score is None else score.mean,
        episodes=0 if score is None else len(score.returns),
        env_steps=0 if session is None else session.acting.training_steps,
        wall_seconds=seconds,
        env_steps_per_second=last.get("env_steps_per_second", 0.0),
        replay_ratio=last.get("replay_ratio", 0.0),
        policy_lag_updates=last.get("policy_lag_updates", 0.0),
        updates=0 if session is None else session.learning.updates,
        workdir=workdir,
        solved=session is not None and session.evaluator.confirmed is not None,
    )
