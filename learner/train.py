"""One run of a learner, from top to bottom.

`train` opens the run directory, serves, waits for the first env server, builds what its environment
needs (`learner.build`), starts the threads (`learner.schedule`), supervises them (`TrainLoop`), and
ends with everything saved. This thread, the main one, owns the folder, the reports and the saves;
of device arrays it only reads published parameters while the others run.
"""

import contextlib
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from learner.balancing import Balancer, Setting
from learner.build import StartFrom, build, build_hub, plan_geometry
from learner.checkpointing import Checkpointer
from learner.checkpoints.restoring import initial_of, is_other_task, require_fit
from learner.checkpoints.run_folder import Resume, RunFolder
from learner.checkpoints.run_records import played_rounds
from learner.end_of_run import (
    OVER,
    EndOfRun,
    LastRound,
    common_end,
    end_of_run,
    ended_earlier,
    is_over,
    stopped_by,
)
from learner.multihost.agreement import Hosts
from learner.multihost.joining import (
    StoppedError,
    common_checkpoint,
    common_spec,
    joined,
    leave_jax,
    of_first,
    own_folder,
    require_shared,
)
from learner.multihost.topology import ALONE, Topology
from learner.processes.env_servers import Fleets
from learner.processes.stop import StopRequest
from learner.processes.tuning import start_devices, tune_for
from learner.report.status import ERROR
from learner.report.terminal import Summary
from learner.reports import ProgressReporter, Reports, report_start
from learner.runtime.watchdog import exit_deadline, exit_now
from learner.runtime.worker import Deaths
from learner.schedule import Session
from learner.serving.access import with_address
from learner.serving.hub import Hub, refusal
from learner.serving.server import Service
from seedrl.config import Config, check
from seedrl.errors import ConfigError, UserError
from seedrl.exit_codes import ExitCode
from seedrl.specs import EnvSpec
from seedrl.timing import POLL_SECONDS

# Limit for the end of a run; `stuck_seconds` is added for the work under way.
_STOP_SECONDS = 120.0


def train(
    config: Config,
    *,
    workdir: Path,
    resume: Resume = "auto",
    init_from: Path | None = None,
    init_from_partial: bool = False,
    name: str = "",
    stop: StopRequest | None = None,
    topology: Topology = ALONE,
    lock: int | None = None,
    fleets: Fleets | None = None,
) -> Summary | ExitCode:
    """Trains until the configured end or a stop request; blocks. Writes the run directory.

    Args:
      config, workdir, resume: what, where, and whether from what is there.
      init_from: folder of another run, whose parameters a new one starts with.
      init_from_partial: only those that fit the new run's network, and without an error.
      name: of the configuration, where the run is shown.
      stop: ends the run when it is set; its `command` is what the user typed.
      topology: of this process among those that share the run. The first one writes the folder, the
        others below it, in hosts/I.
      lock: on the folder, of a caller that has taken it and runs env servers on this host.
      fleets: env servers of that caller, for a run that changes their number.

    Returns how it went; an exit code if it was over, or stopped, before an env server had joined.
    Raises a UserError for what the user can fix, StoppedError if it was stopped while it waited for
    other hosts to start, RuntimeError if a thread died.
    """
    started = time.monotonic()
    folder_path = own_folder(workdir, topology)
    # The address too: a public one needs a token.
    check(config := with_address(config, folder_path))
    stop = stop or StopRequest()
    tune_for(config)
    with contextlib.ExitStack() as stack:
        # 1. The other hosts, the folder, and what to start from.
        try:
            hosts = stack.enter_context(
                joined(topology, config, stop, init_from, init_from_partial)
            )
            # After the hosts have joined: jax looks for devices once, and then finds those of all.
            start_devices()
            folder = stack.enter_context(contextlib.closing(RunFolder(folder_path, lock)))
            start = _start_from(
                config, workdir, folder, hosts, stop, resume, init_from, init_from_partial
            )
        except StoppedError as error:
            raise StoppedError(f"stopped by {stop.by}{stop.before_start()}") from error
        if isinstance(start, ExitCode):
            return start
        # Before anything is written: what does not fit the devices leaves no trace.
        geometry = plan_geometry(config, topology)
        session_number = folder.record_command(stop.command)
        # A caller that holds the lock has started the env servers of this host.
        own_host = "" if lock is None else socket.gethostname()
        reports = stack.enter_context(
            Reports(config, name, folder, start.checkpoint, own_host=own_host)
        )
        report_start(
            reports.events,
            start,
            config,
            earlier_sessions=0 if folder.is_begun_anew else session_number - 1,
            is_alone=hosts.is_alone,
        )

        # 2. Serving. Its threads answer env servers from here on.
        deaths = stack.enter_context(Deaths())
        hub = build_hub(
            config,
            geometry,
            session_number=session_number,
            checkpoint=start.checkpoint,
            events=reports.events,
        )
        # Before acting is built: env servers build their environments meanwhile.
        service = stack.enter_context(Service(hub, config.serving))
        reports.started(hub, service.address, str(geometry))

        # 3. The first env server, or the checkpoint, says what the environment looks like.
        spec = _wait_for_env_server(hub, hosts, stop, deaths.raise_first)
        if spec is None:
            reports.end(stopped_by(stop), stop.before_start())
            service.stop()  # env servers come back to the next session
            # As `StoppedError`: the other hosts end to be started again, and wait for this one.
            return ExitCode.OK if hosts.is_alone else ExitCode.KILLED

        # 4. Acting, learning and replay, the threads that run them, and their supervision.
        with _refusing(hub):
            system = build(
                config,
                geometry,
                hub=hub,
                spec=spec,
                metrics=reports.metrics,
                start=start,
                hosts=hosts,
            )
        del start  # parameters that were taken over need memory only once
        session = Session(config, system, hub, reports.metrics)
        # Only now: a config that this environment refuses must not replace one that works.
        folder.record_config(config)
        reports.compiling(session)
        balancer = None
        if fleets is not None:
            reports.events.is_releasing = lambda: fleets.is_releasing
            deadline = config.serving.batch_deadline_seconds
            balancer = Balancer(
                Setting(fleets.sizes[-1], config.launch.groups, deadline),
                fleets,
                set_deadline=hub.set_batch_deadline,
                listener=reports.events,
            )
        loop = TrainLoop(
            config,
            session,
            service=service,
            folder=folder,
            reports=reports,
            stop=stop,
            deaths=deaths,
            balancer=balancer,
        )

        # 5. Until it is over. From `start` on threads use what the stack closes: nothing that may
        # raise comes between it and `try`.
        session.start()
        try:
            loop.run()
        finally:
            seconds = _STOP_SECONDS + config.logging.stuck_seconds
            with exit_deadline(seconds, "the run was not stopped and saved"):
                loop.end()

        # 6. The summary and the curve.
        seconds = time.monotonic() - started
        summary = reports.summary(session, seconds=seconds, command=stop.command)
        # Not after a signal: its sender may soon kill this process, and the end must be reported.
        if topology.is_first and not stop.is_set():
            undrawn = "learner: warning: the run is saved, but its learning curve was not drawn"
            with exit_deadline(_STOP_SECONDS, undrawn, summary.exit_code, end=exit_now):
                reports.draw_curve()
        return summary


def _start_from(
    config: Config,
    workdir: Path,
    folder: RunFolder,
    hosts: Hosts,
    stop: StopRequest,
    resume: Resume,
    init_from: Path | None,
    is_partial: bool,
) -> StartFrom | ExitCode:
    # The exit code if the run is over since an earlier session. The first host reads the folder and
    # the others take what it found, so that all resume from the same checkpoint or none does.
    topology = hosts.peers.topology
    require_shared(workdir, hosts, stop)
    plan_geometry(config, topology)  # what it refuses, nothing in the folder can fix
    # Each host reports and records that the attempt before does not count.
    folder.is_begun_anew = resume == "never"
    found = folder.checkpoint(resume) if topology.is_first else None
    checkpoint = common_checkpoint(found, workdir, hosts, stop)
    if checkpoint is not None:
        require_fit(checkpoint, config)
        # All hosts find the same: of several, none looks at rounds.
        folder.is_other_environment = is_other_task(checkpoint, config)
        counts = hosts.is_alone and not folder.is_other_environment
        rounds = [each.score for each in played_rounds(folder.metrics)] if counts else []
        code = ended_earlier(checkpoint, config, rounds, is_alone=hosts.is_alone)
        if code is not None:
            return code
    initial = None
    if init_from and checkpoint is None:
        # The other run may save a newer checkpoint meanwhile.
        initial = initial_of(init_from) if topology.is_first else None
        step = of_first("initial", initial and initial[0].step, hosts, stop)
        initial = initial or initial_of(init_from, step)
    return StartFrom(checkpoint, initial, is_partial)


def _wait_for_env_server(
    hub: Hub, hosts: Hosts, stop: StopRequest, check_threads: Callable[[], object]
) -> EnvSpec | None:
    # None if `stop` is set first. `check_threads` raises if a thread that would bring the spec has
    # died. A checkpoint has the spec too, but nothing is compiled before an env server is there. Of
    # several hosts, which wait for each other, one may have none for long.
    while not stop.is_set():
        check_threads()
        spec = common_spec(hub.wait_for_spec, hosts, stop, check_threads, POLL_SECONDS)
        if spec is not None and (not hosts.is_alone or hub.wait_for_env_server(POLL_SECONDS)):
            return spec
    return None


@contextlib.contextmanager
def _refusing(hub: Hub) -> Iterator[None]:
    # An environment that the agent or the devices cannot use ends its env servers, too.
    try:
        yield
    except ConfigError as error:
        hub.close(refusal(str(error)))
        raise


class TrainLoop:
    """Supervises a session that has started: reports, saves, decides that it is over, and ends it.

    Used by the main thread.
    """

    def __init__(
        self,
        config: Config,
        session: Session,
        *,
        service: Service,
        folder: RunFolder,
        reports: Reports,
        stop: StopRequest,
        deaths: Deaths,
        balancer: Balancer | None = None,
    ):
        """Uses what it is given; whoever gave it closes it.

        Args:
          stop: the run is to end.
          deaths: of threads outside the session.
          balancer: changes the number of env servers, if it may change.
        """
        self._config, self.session, self._service = config, session, service
        self._reports = reports
        self._balancer = balancer
        self._stop, self._deaths = stop, deaths
        earlier = [each.score for each in played_rounds(folder.metrics)]
        self.progress = ProgressReporter(config, session, reports.events, earlier=earlier)
        reports.progress = self.progress
        if self.progress.last is not None:
            session.evaluator.resume(self.progress.last)
        self._last_round = LastRound(
            session, config.evaluation.final_seconds, reports.events, newest=self.progress.last
        )
        self._next_report = time.monotonic() + config.logging.interval_seconds
        self._residues: list[str] = []  # what has ended the run
        self._hosts = session.system.hosts
        self.checkpointer = Checkpointer(
            config,
            session,
            folder,
            metrics=reports.metrics,
            listener=reports.events,
        )

    def run(self) -> None:
        """Reports and saves at their intervals until the run is over."""
        while not self._is_over():
            self.session.failed.wait(POLL_SECONDS)
            # Before anything that may end this process: a round of evaluation is on record.
            self._reports.metrics.write()
            self.progress.update()
            if not self._hosts.is_alone and self.session.num_updates:
                leave_jax()  # not possible before the first update
            now = time.monotonic()
            if now >= self._next_report:
                self._next_report = now + self._config.logging.interval_seconds
                values = self._report()
                if self._balancer is not None:
                    self._balancer.update(values, self._reports.conditions)
                self._residues = self.session.residues()
                if self._residues:
                    break  # experience may be mixed up: no more learning from it
            # While learning is compiled nothing changes that is worth another save.
            if not self.session.is_compiling:
                self.checkpointer.save_what_is_due()

    def end(self) -> None:
        """Stops the threads, starts the last save, lets the env servers go, waits for the save.

        The last report follows the start of the save, which nothing that is only shown may prevent.
        Raises what has gone wrong in the run; RuntimeError for a defect of ours.
        """
        ended = None
        try:
            self._reports.metrics.write()  # stopping and saving may take long
            self.progress.update()
            ended = self._outcome()
            self._reports.end(ERROR if ended is None else ended.why)
        finally:
            try:
                self._stop_and_save(ended)
            finally:
                self.checkpointer.wait()  # its thread would end with the process
        # The threads' last piece of work may have reached the target.
        self.progress.update()
        if ended is not None and ended.kind in OVER:
            after = self._outcome()
            if after is not None and after.kind == "confirmed":
                self._reports.end(after.why)
        self._raise_failure(ended)

    def _end_of_run(self) -> EndOfRun | None:
        return end_of_run(
            self.session,
            self._stop,
            self._config,
            skipped_in_a_row=self.progress.skipped_in_a_row,
            elapsed_seconds=self._reports.events.elapsed_seconds,
            has_death=self._deaths.first is not None,
            is_scored=self._last_round.is_over,
            has_stalled=self.progress.has_stalled and not self.session.evaluator.is_confirming,
        )

    def _is_over(self) -> bool:
        return is_over(self._end_of_run(), self._hosts)

    def _outcome(self) -> EndOfRun | None:
        # What all hosts have agreed on comes before what this one sees.
        return common_end(self._hosts) or self._end_of_run()

    def _report(self) -> Mapping[str, float]:
        self.session.set_gauges()
        values = self._reports.metrics.flush(
            env_steps=self.session.acting.training_steps, updates=self.session.learning.updates
        )
        self.progress.look_at_episodes()
        self.progress.look_at_metrics(values)
        # Another object: it is shown once, when the status thread finds it.
        self._reports.values = {**self._reports.values, **values}
        return values

    def _stop_and_save(self, ended: EndOfRun | None) -> None:
        # First the threads end, then the state is read (nobody owns it any more), and env servers
        # are answered last: they must not return to a learner that still has the address.
        can_save = self._hosts.can_save
        if not can_save:
            # No other host waits for this one then.
            self._hosts.peers.fail(self._failure() or "see its log")
        self.session.stop()
        try:
            # All threads have ended: whatever the ledger does not explain now was lost or made up.
            # Then this state is not saved: the newest checkpoint may be from before that.
            self._residues = self._residues or self.session.residues(at_rest=True)
            if can_save and not self._residues:
                self.checkpointer.save_the_end()
            self._report()
        finally:
            is_done = ended is not None and ended.kind in ("confirmed", *OVER)
            if is_done and not self._stop.is_set():
                self._service.finish("training is over")
            else:
                self._service.stop()

    def _failure(self) -> BaseException | None:
        # Of one of its threads, or of what this one is raising.
        _, died = self._deaths.first or ("", None)
        return self.session.failure or died or sys.exception()

    def _raise_failure(self, ended: EndOfRun | None) -> None:
        self.session.raise_failure()
        self._deaths.raise_first()
        if self._hosts.end:
            leave_jax()  # as all hosts do; where there was an update they have done so before
        self._hosts.leave()
        self._reports.metrics.record("ledger", **self.session.accounts())
        if self._residues:
            raise RuntimeError("; ".join(self._residues))
        if self.checkpointer.failure is not None:
            raise self.checkpointer.failure
        if ended is not None and ended.kind == "not_finite":
            # Not a temporary failure: another start would learn from the same parameters and data.
            raise UserError(
                f"expected finite updates, got {self.progress.skipped_in_a_row:,} in a row with a "
                "non-finite loss, gradient, optimizer step or running moment "
                "(learning.max_skipped_updates). hint: check rewards, observations and the "
                "learning rate; everything learned before is saved"
            )
