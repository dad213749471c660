"""A learner's run: the wiring of its parts, from what its folder holds to the summary."""

import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from learner.hosts.agenda import Hosts
from learner.hosts.place import ALONE, Place
from learner.hosts.waiting import StoppedError
from learner.processes.stop import StopRequest
from learner.processes.tuning import tune_process
from learner.reporting.events import Events
from learner.reporting.status import EvaluationStatus
from learner.reporting.summary import Summary, why_nothing_learned
from learner.saving.recorder import open_recorder
from learner.saving.restoring import fitting, same_agent
from learner.saving.run_folder import Resume, RunFolder
from learner.saving.run_records import played_rounds, rounds_until
from learner.saving.saver import Saver, open_saver
from learner.serving.access import with_address
from learner.serving.hub import Hub
from learner.serving.peer import refusal
from learner.serving.server import Service
from learner.session.components import Origin
from learner.session.end_of_run import EndOfRun, confirmed_earlier, raise_death, why
from learner.session.geometry import Geometry, described, plan_geometry
from learner.session.reports import Reports, open_reports
from learner.session.session import Session
from learner.session.sharing.joining import (
    CommonSpec,
    common_checkpoint,
    common_word,
    joined,
    own_folder,
    require_shared,
)
from learner.session.sharing.replay import replay_text
from learner.session.sharing.serving import serving_hub, slot_table
from learner.session.supervision import STOP_SECONDS, Supervision
from learner.threads.watchdog import ExitDeadline
from learner.threads.worker import Deaths
from seedrl.checkpoints import Checkpoint, best_return
from seedrl.config import Config
from seedrl.config_checks import check
from seedrl.config_json import to_allow, to_json
from seedrl.config_tree import fields_of
from seedrl.errors import ConfigError
from seedrl.exit_codes import ExitCode

_TICK_SECONDS = 0.1

Found = TypeVar("Found")


def train(
    config: Config,
    *,
    workdir: Path,
    resume: Resume = "auto",
    init_from: Path | None = None,
    name: str = "",
    stop: StopRequest | None = None,
    place: Place = ALONE,
) -> Summary | None:
    """Trains until the configured end or SIGTERM; blocks. Writes the run folder.

    Args:
      config, workdir, resume: what, where, and whether from what is there.
      init_from: folder of another run, whose parameters a new one begins with.
      name: of the configuration, where the run is shown.
      stop: ends the run when it is set; its `command` is what the user typed.
      place: of this process among those that share the run. The first one writes the folder, the
        others below it, in hosts/I.

    Returns how it went; None if it was over, or stopped, before an env server had joined. Raises
    a UserError for what the user can put right, StoppedError if it was stopped while it waited for
    other hosts to begin, RuntimeError if a thread died.
    """
    own = own_folder(workdir, place)
    check(config := with_address(config, own))
    stop = stop or StopRequest()
    start = time.monotonic()
    tune_process(keeps_freed_memory=config.learning.keep_freed_memory)
    try:
        with (
            joined(place, config, stop, init_from) as hosts,
            contextlib.closing(RunFolder(own)) as folder,
            folder.unchanged_until_begun(),
        ):
            run = _Run(config, workdir, hosts, folder, start, stop)
            origin = _origin(run, resume, init_from)
            return origin and _reported(run, origin, name)
    except StoppedError as error:
        raise StoppedError(f"stopped by {stop.by}{stop.before_start()}") from error


class _Run(NamedTuple):
    """What all of a run needs to know of it; `workdir` is its folder, `folder` this host's."""

    config: Config
    workdir: Path
    hosts: Hosts
    folder: RunFolder
    start: float
    stop: StopRequest


def _origin(run: _Run, resume: Resume, init_from: Path | None) -> Origin | None:
    """What the run begins with; None if there is nothing left to do."""
    config, folder, hosts = run.config, run.folder, run.hosts
    require_shared(run.workdir, hosts, run.stop)
    plan_geometry(config, hosts.peers.place)  # what it refuses, nothing in the folder can mend
    found = folder.checkpoint(resume) if hosts.peers.place.is_first else None
    checkpoint = same_agent(common_checkpoint(found, run.workdir, hosts, run.stop), config)
    if _is_confirmed(run, checkpoint):
        return None
    return Origin(checkpoint, fitting(checkpoint, init_from, config))


def _reported(run: _Run, origin: Origin, name: str) -> Summary | None:
    """The run, from its first report on."""
    config, folder, checkpoint = run.config, run.folder, origin.checkpoint
    geometry = plan_geometry(config, run.hosts.peers.place)
    session_number = folder.record_command(run.stop.command)
    with open_reports(config, name, folder, checkpoint) as reports:
        best = None if checkpoint else _best(folder)
        reports.resumed(checkpoint, best, replay=replay_text(checkpoint, geometry, config))
        slots = slot_table(config, geometry, session_number)
        hub = serving_hub(config, geometry, slots, checkpoint, reports.events)
        summary = _train(run, geometry, hub, origin, reports)
        return summary and summary._replace(command=run.stop.command)


def _is_confirmed(run: _Run, checkpoint: Checkpoint | None) -> bool:
    """Whether an earlier session has confirmed the target, by what the first host has written."""
    rounds: Sequence[EvaluationStatus] = ()
    if checkpoint and run.hosts.peers.place.is_first:  # of those steps that have not been lost
        rounds = rounds_until(run.folder.metrics, checkpoint.meta["env_steps"])
    over = checkpoint is not None and confirmed_earlier(rounds, checkpoint, run.config)
    return common_word("confirmed", over, run.hosts, run.stop)


def _train(
    run: _Run, geometry: Geometry, hub: Hub, origin: Origin, reports: Reports
) -> Summary | None:
    config, _, hosts, folder, start, stop = run
    _, metrics, events, live = reports
    with contextlib.ExitStack() as stack:
        deaths = stack.enter_context(Deaths())
        service = stack.enter_context(_served(hub, config))
        live.hub, live.address = hub, service.address
        _report_started(events, folder.path, service.address, geometry)
        look = functools.partial(raise_death, service, deaths)

        session = None
        if spec := wait_for(CommonSpec(hub, hosts, stop, look).wait, stop, look):
            opened = open_recorder(config, folder.path, spec, hub.num_batches)
            recorder = stack.enter_context(opened)
            with _refusing(hub):
                session = Session(config, geometry, hub, spec, metrics, origin, recorder, hosts)
            reports.begins_with(origin.initial)
            live.session, events.count_steps = session, lambda: session.acting.training_steps
        # A checkpoint's may have no env server yet: that is reported before anything is compiled.
        # Of several hosts, which wait for each other, one may have none for long.
        must_join = session is not None and hosts.is_alone
        if session is None or (must_join and not wait_for(hub.wait_for_env_server, stop, look)):
            _end_early(service, reports, stop)
            return None
        _begin(config, folder, session, reports)
        supervision = Supervision(
            config,
            session,
            service=service,
            saver=_saver(run, origin.checkpoint, events),
            reports=reports,
            stop=stop,
            deaths=deaths,
            earlier=[] if folder.is_begun_anew else played_rounds(folder.metrics),
        )
        try:
            supervision.run()
        finally:
            folder.has_begun = not session.is_refused
            _end(supervision, config)
        if hosts.peers.place.is_first:
            reports.draw_curve(config, folder, stop.seconds_to_end())
        return _summary(config, session, supervision, start, folder)


def wait_for(
    condition: Callable[[float], Found | None],
    stop: StopRequest,
    look: Callable[[], object] = lambda: None,
) -> Found | None:
    """What `condition(timeout)` finds; None if `stop` is set before. `look` may raise meanwhile."""
    while not stop.is_set():
        look()
        if found := condition(_TICK_SECONDS):
            return found
    return None


@contextlib.contextmanager
def _refusing(hub: Hub) -> Iterator[None]:
    """An environment that the agent or the devices do not suit ends its env servers, too."""
    try:
        yield
    except ConfigError as error:
        hub.close(refusal(str(error)))
        raise


def _begin(config: Config, folder: RunFolder, session: Session, reports: Reports) -> None:
    """Compiles what acting needs, and starts. What is refused until then has never begun.

    Nor has what is refused later, when the update is traced: see `Session.is_refused`.
    """
    folder.record_config(config)
    reports.metrics.describe(fields_of(config))
    reports.metrics.record(
        "session", env_steps=session.acting.training_steps, is_begun_anew=folder.is_begun_anew
    )
    reports.compiling(session.replay_bytes)
    session.start()
    folder.has_begun = True


def _end(supervision: Supervision, config: Config) -> None:
    seconds = STOP_SECONDS + config.logging.stuck_seconds
    with ExitDeadline(seconds, "the run was not stopped and saved", code=ExitCode.STUCK):
        supervision.end()


def _end_early(service: Service, reports: Reports, stop: StopRequest) -> None:
    """Ends a run that was stopped before an env server had joined."""
    reports.end(why(EndOfRun.STOPPED, stopped_by=stop.by), stop.before_start())
    service.stop()


def _report_started(events: Events, workdir: Path, address: str, geometry: Geometry) -> None:
    devices = described(geometry)
    text = f"learner: {workdir}, serving {address}, {devices}"
    events.report("started", text, address=address, devices=devices, workdir=str(workdir))


@contextlib.contextmanager
def _served(hub: Hub, config: Config) -> Iterator[Service]:
    """A started service, which whoever uses it stops; if that fails it is stopped at once."""
    service = Service(hub, config.serving)
    try:
        service.start()
        yield service
    except BaseException:
        service.stop(grace_seconds=0.0)
        raise


def _saver(run: _Run, resumed: Checkpoint | None, events: Events) -> Saver:
    peers = run.hosts.peers
    path = run.folder.path if peers.place.is_first else run.workdir
    best = _best(run.folder)
    return open_saver(run.config, path, best=best, resumed=resumed, listener=events, peers=peers)


def _best(folder: RunFolder) -> Checkpoint | None:
    """What the next score must exceed to be saved; another attempt's does not count.

    A session that was killed before its first checkpoint leaves its best parameters alone: that
    nothing can be resumed is no reason to lose them.
    """
    return None if folder.is_begun_anew else folder.best()


def _summary(
    config: Config, session: Session, supervision: Supervision, start: float, folder: RunFolder
) -> Summary:
    best, confirmed = folder.best(), session.evaluator.confirmed
    return Summary(
        reason=supervision.reason,
        last=supervision.announcements.last,
        best=supervision.announcements.best,
        env_steps=session.acting.training_steps,
        total_steps=config.learning.total_steps,
        target_return=config.evaluation.target_return,
        wall_seconds=time.monotonic() - start,
        metrics=supervision.last,
        updates=session.learning.updates,
        workdir=folder.path,
        confirmed_updates=None if confirmed is None else confirmed.frozen.version,
        best_return=None if best is None else best_return(best),
        best_updates=0 if best is None else best.step,
        nothing_learned=why_nothing_learned(
            is_confirmed=confirmed is not None,
            is_compiling=supervision.announcements.is_compiling,
            num_skipped=session.learning.num_skipped,
        ),
        to_allow=tuple(to_allow(to_json(config))),
    )
