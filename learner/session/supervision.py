"""The main thread's work during a run: reports, saves, and the decision that it is over."""

import sys
import time
from collections.abc import Iterable
from concurrent.futures import wait
from typing import NoReturn

from learner.learning.loop import Snapshot
from learner.processes.stop import StopRequest
from learner.reporting.status import EvaluationStatus
from learner.saving.saver import Saver
from learner.serving.server import Service
from learner.session.announcements import ProgressReporter
from learner.session.end_of_run import EndOfRun, end_of_run, raise_death, why
from learner.session.reports import Reports
from learner.session.session import Session
from learner.session.sharing.end import SharedEnd
from learner.session.sharing.part import depend_on_no_service
from learner.threads.worker import Deaths
from seedrl.config import Config
from seedrl.errors import NotFiniteError

_TICK_SECONDS = 0.1
STOP_SECONDS = 120.0


class Supervision:
    """Watches over a session that has started, until it has ended. Used by the main thread.

    Attributes:
      announcements: what the session has reached.
      reason: why the run has ended, in words.
      last: the metrics of the last report, and of the one before what it lacks.
    """

    def __init__(
        self,
        config: Config,
        session: Session,
        *,
        service: Service,
        saver: Saver,
        reports: Reports,
        stop: StopRequest,
        deaths: Deaths,
        earlier: Iterable[EvaluationStatus] = (),
    ):
        """Uses what it is given; whoever gave it closes it.

        Args:
          stop: the run is to end, as SIGTERM says.
          deaths: of threads that nobody watches.
          earlier: rounds of evaluation of the sessions before this one.
        """
        self._config = config
        self._session = session
        self._service = service
        self._saver = saver
        self._metrics = reports.metrics
        self._progress = reports.progress
        self._reports = reports
        self._live = reports.live
        self._stop = stop
        self.announcements = ProgressReporter(
            config,
            session,
            reports.events,
            earlier=earlier,
            compiling_since=reports.live.compiling_since,
        )
        reports.live.announcements = self.announcements
        self._next_report = time.monotonic() + config.logging.interval_seconds
        self.last: dict[str, float] = {}
        self.reason = ""
        # Updates and environment steps of the run when it was saved last in this session.
        self._saved: tuple[int, int] | None = None
        self._residues: list[str] = []  # what has ended the run
        self._deaths = deaths
        self._shared_end = SharedEnd(session.hosts)

    def run(self) -> None:
        """Reports and saves at their intervals until the run is over."""
        while not self._is_over():
            self._session.failed.wait(_TICK_SECONDS)
            self._saver.look(self._config.logging.stuck_seconds)
            self.announcements.look()
            depend_on_no_service(self._session.hosts, self._session.learning)
            now = time.monotonic()
            if now >= self._next_report:
                self._next_report = now + self._config.logging.interval_seconds
                self.last = self._report()
                self._residues = self._session.residues()
                if self._residues:
                    break  # experience may be mixed up: no more learning from it
            # While learning is compiled nothing changes that is worth another save.
            if not self._session.is_compiling:
                self._save_what_is_due()

    def end(self) -> None:
        """Stops both threads, saves, and lets the env servers go: for good if training is over.

        The last report follows the start of the save, which nothing that is merely shown may
        prevent. Raises what has gone wrong in the run; RuntimeError for what is a defect of ours.
        """
        ended = None
        try:
            self.announcements.look()
            ended = self._outcome()
            self._say_why(ended)
        finally:
            try:
                self._stop_and_save(ended)
            finally:
                self._saver.wait()  # its thread would end with the process
        self._look_once_more(ended)
        self._raise_failure(ended)

    def _look_once_more(self, ended: EndOfRun | None) -> None:
        """Says what the threads' last piece of work has reached: that may be the target."""
        self.announcements.look()
        if ended is EndOfRun.ALL_STEPS and self._outcome() is EndOfRun.CONFIRMED:
            self._say_why(EndOfRun.CONFIRMED)

    def _say_why(self, ended: EndOfRun | None) -> None:
        self.reason = self._shared_end.reason or self._why(ended)
        self._reports.end(self.reason)

    def _why(self, ended: EndOfRun | None) -> str:
        return why(
            ended,
            self._config.evaluation.target_return,
            self._session.evaluator.confirmed,
            self._config.learning.total_steps,
            stopped_by=self._stop.by,
            begins_untrained=self._session.begins_untrained,
            confirming=self._session.evaluator.confirmation,
        )

    def _stop_and_save(self, ended: EndOfRun | None) -> None:
        can_save = self._shared_end.can_save()
        if not can_save:
            self._shared_end.go_alone(self._failure())  # nobody waits for us then
        if not self._session.stop(STOP_SECONDS):
            self._raise_unstopped()
        has_failed = self._session.failed.is_set()
        try:
            # At the end replay has taken in what was on its way, and the parameters may be others.
            is_same = not self._config.checkpoint.replay and not self._session.evaluator.confirmed
            is_same = is_same and self._session.hosts.is_alone and self._is_saved()
            while can_save and (agreed := self._session.hosts.agenda.taken()) is not None:
                self._start_save(agreed)  # as the other hosts do
            if can_save and not has_failed and not is_same:
                snapshot = self._session.final_snapshot()
                self._start_save(snapshot)
            self.last |= self._report()
        finally:
            if ended in (EndOfRun.CONFIRMED, EndOfRun.ALL_STEPS) and not self._stop.is_set():
                self._service.finish("training is over")
            else:
                self._service.stop()

    def _raise_unstopped(self) -> NoReturn:
        """Nothing can be saved. What the run ends of, if that is known, is what is raised."""
        text = f"a thread of the learner did not stop within {STOP_SECONDS:.0f} seconds"
        if (failure := self._failure()) is None:
            raise RuntimeError(text)
        print(f"learner: error: {text}", file=sys.stderr, flush=True)
        self._session.raise_failure()
        raise_death(self._service, self._deaths)
        raise failure

    def _failure(self) -> BaseException | None:
        """What this host ends of, if that is known: of a thread, or of this one."""
        death = self._deaths.first
        died = None if death is None else death.error
        return self._session.failure or self._service.failure or died or sys.exception()

    def _is_over(self) -> bool:
        return self._shared_end.is_over(self._end_of_run(), self._why)

    def _outcome(self) -> EndOfRun | None:
        """Why the run is over, for all hosts if they have agreed on it."""
        return self._shared_end.outcome() or self._end_of_run()

    def _end_of_run(self) -> EndOfRun | None:
        return end_of_run(
            self._session,
            self._service,
            self._stop,
            self._config.learning,
            skipped_in_a_row=self.announcements.skipped_in_a_row,
            death=self._deaths.first,
        )

    def _report(self) -> dict[str, float]:
        session = self._session
        session.gauges()
        values = self._metrics.flush(
            env_steps=session.acting.training_steps, updates=session.learning.updates
        )
        self._live.metrics = self._live.metrics | values
        self._progress.update(values)
        return values

    def _save_what_is_due(self) -> None:
        # What was taken waits while a save is under way: one that hangs shall not stop this thread.
        if not self._saver.is_busy and (snapshot := self._session.hosts.agenda.taken()) is not None:
            self._start_save(snapshot)
            self._metrics.record("checkpoint", updates=int(snapshot.state.updates))
            return
        if self._saver.take_turn(has_learned=self._session.learning.num_applied > 0):
            if not self._is_saved():
                self._save()
            return
        best = self._session.acting.best_score
        # At once: what is said to have scored highest must outlive a learner that is killed.
        if best is None or not self._saver.wants(best.score.mean):
            return
        snapshot = self._snapshot(with_replay=False)
        if snapshot is not None and (kept := self._session.best(snapshot)) is not None:
            self._saver.start_best(kept)

    def _snapshot(self, *, with_replay: bool) -> Snapshot | None:
        """A copy of the state while it is learned from; None if the run is over before.

        It is taken between two updates: who waits for one that never ends must notice that.
        """
        answer = self._session.snapshot(with_replay=with_replay)
        while not answer.done():
            if self._is_over():
                return None
            wait([answer], _TICK_SECONDS)
        return answer.result()

    def _counts(self) -> tuple[int, int]:
        return self._session.learning.updates, self._session.acting.training_steps

    def _is_saved(self) -> bool:
        """Whether nothing has been acted or learned since the last save: no env server, say."""
        return self._saver.failure is None and self._saved == self._counts()

    def _save(self) -> None:
        # Before the snapshot: what happens meanwhile is to be saved again.
        counts = self._counts()
        if not self._session.hosts.is_alone:
            # All take a snapshot before the same update.
            self._session.hosts.agenda.wants_save, self._saved = True, counts
            return
        snapshot = self._snapshot(with_replay=self._config.checkpoint.replay)
        if snapshot is not None:
            self._start_save(snapshot)
            self._saved = counts
            self._metrics.record("checkpoint", updates=int(snapshot.state.updates))

    def _start_save(self, snapshot: Snapshot) -> None:
        session = self._session
        self._saver.start(snapshot, session.meta(snapshot), session.best(snapshot))

    def _raise_failure(self, ended: EndOfRun | None) -> None:
        """Raises what has gone wrong in a run that has ended; writes its last accounts."""
        self._session.raise_failure()
        raise_death(self._service, self._deaths)
        self._shared_end.leave()
        self._metrics.record("ledger", **self._session.accounts())
        if broken := self._residues or self._session.residues(at_rest=True):
            raise RuntimeError("; ".join(broken))
        if self._saver.failure is not None:
            raise self._saver.failure
        if ended is EndOfRun.NOT_FINITE:
            raise NotFiniteError(
                f"expected finite updates, got {self.announcements.skipped_in_a_row:,} in a row "
                "whose loss, gradient, step or running moments were not "
                "(learning.max_skipped_updates); look at rewards, observations and the learning "
                "rate; what was learned before is saved"
            )
