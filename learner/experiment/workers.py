"""The processes of an experiment: N at a time, until every run is done."""

import queue
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Self

from learner.experiment.grid import PlannedRun
from learner.experiment.run_state import Step, has_begun, is_in_use, next_step
from learner.launch.child import Child, Command
from learner.processes.stop import is_repeat
from learner.reporting.status import STOPPED
from learner.reporting.wording import score
from learner.saving.run_records import read_run
from seedrl.config_json import to_allow
from seedrl.exit_codes import ExitCode
from seedrl.run_files import CONFIG

# How a run ends that is done: a target that was missed is a result too.
_DONE = frozenset({ExitCode.OK, ExitCode.TARGET_MISSED})
_LOOK_SECONDS = 1.0
_REPORT_SECONDS = 30.0
_IN_USE = "another learner is using its folder"

Outcome = Literal["finished", "failed", "interrupted", "not started"]


class _Exit(NamedTuple):
    child: Child
    code: int


class _Signal(NamedTuple):
    number: int
    seconds: float


class _Job(NamedTuple):
    run: PlannedRun
    step: Step


class Workers:
    """Owns the processes that train and score runs; used by one thread.

    Each is `seedrl train` or `seedrl evaluate` in its own process group, and gets SIGTERM if this
    process is killed: it saves. What is left to do is read from the folders of runs at every start,
    so an experiment is resumed by starting it again. A run that fails is kept, and ends no other.

    Attributes:
      outcomes: of each run by name, as far as it has come.
      reasons: of those that have not finished, in one line.
    """

    def __init__(
        self,
        folder: Path,
        runs: Sequence[PlannedRun],
        *,
        number: int,
        episodes: int,
        environment: Mapping[str, str],
        say: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True),
        clock: Callable[[], float] = time.monotonic,
        start: Callable[[Command, Callable[[Child, int], None]], Child] = Child,
    ):
        """Starts nothing yet.

        Args:
          folder: of the experiment; each run has one of its name in it.
          runs: in the order in which they are begun.
          number: of processes at a time.
          episodes: of final scores.
          environment: variables of the processes.
          say, clock: prints a line; monotonic seconds.
          start: starts a process and calls back when it has ended, from any thread.
        """
        self._folder, self._number, self._episodes = folder, number, episodes
        self._environment, self._say, self._clock = environment, say, clock
        self._start_child = start
        self._waiting = list(runs)
        self._num_runs = len(runs)
        self._trained: set[str] = set()
        self._refused: set[str] = set()
        self._busy: dict[Child, _Job] = {}
        self._events: queue.SimpleQueue[_Exit | _Signal] = queue.SimpleQueue()
        self._first_signal: float | None = None
        self._next_report = clock() + _REPORT_SECONDS
        self.outcomes: dict[str, Outcome] = {run.name: "not started" for run in runs}
        self.reasons: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._busy:
            child.end(0)

    def signal(self, number: int) -> None:
        """Reports a SIGTERM or SIGINT: the first lets all runs save, a second does not wait."""
        self._events.put(_Signal(number, self._clock()))

    def wait(self) -> int:
        """Works until all runs are done, or a signal has ended them; returns the `ExitCode`."""
        while True:
            if self._first_signal is None:
                self._fill()
            if not self._busy and (self._first_signal is not None or not self._waiting):
                break
            try:
                event = self._events.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                self._report()
                continue
            if isinstance(event, _Exit):
                self._ended(event.child, event.code)
            elif self._obey(event):
                return ExitCode.KILLED
        bad = {"failed"} if self._first_signal is not None else {"failed", "interrupted"}
        return ExitCode.FAILED_RUNS if bad & {*self.outcomes.values()} else ExitCode.OK

    def _fill(self) -> None:
        """Starts what there is room for."""
        for run in [*self._waiting]:
            if len(self._busy) >= self._number:
                return
            step = next_step(self._folder / run.name, run, episodes=self._episodes)
            # A run that has confirmed its target keeps its earlier command; it is not begun twice.
            if step == "train" and run.name in self._trained:
                step = "score"
            if step is not None and is_in_use(self._folder / run.name):
                if self.reasons.get(run.name) != _IN_USE:
                    self.reasons[run.name] = _IN_USE
                    self._say(f"{run.name}: {_IN_USE}; waiting for it to end")
                continue
            self._waiting.remove(run)
            if step is None:
                self._finish(run)
            else:
                self._start(run, step)

    def _start(self, run: PlannedRun, step: Step) -> None:
        folder = self._folder / run.name
        if step == "train":
            self._trained.add(run.name)
            words = ["train", *run.words, "--workdir", str(folder)]
        else:
            number = str(self._episodes)
            words = ["evaluate", str(folder), "--episodes", number, "--greedy", "--save"]
            words += self._allowing(folder)
        logs = self._folder / "logs"
        command = Command(
            name=run.name,
            arguments=(sys.executable, "-m", "learner.cli.main", *words),
            environment=self._environment,
            log=logs / f"{run.name}.log",
            ending=signal.SIGTERM,
        )
        try:
            logs.mkdir(exist_ok=True)
            child = self._start_child(
                command, lambda child, code: self._events.put(_Exit(child, code))
            )
        except OSError as error:  # others that train go on
            self._fail(run, "failed", f"cannot be started: {error}")
            return
        self._busy[child] = _Job(run, step)
        self._say(f"{run.name}: {'trains' if step == 'train' else 'plays its final score'}")

    @staticmethod
    def _allowing(run: Path) -> list[str]:
        """It is this experiment that has trained the run: what that needed is allowed."""
        try:
            words = to_allow((run / CONFIG).read_text())
        except (OSError, ValueError, KeyError, TypeError):
            return []  # the evaluation says what is wrong
        return ["--allow", *words] if words else []

    def _ended(self, child: Child, code: int) -> None:
        run, step = self._busy.pop(child)
        if self._first_signal is not None:
            self._stopped(run, step, code)
        elif code == ExitCode.ADDRESS_IN_USE and self._may_be_free_later(run):
            self._trained.discard(run.name)
            self._waiting.append(run)
        elif code not in (_DONE if step == "train" else {ExitCode.OK}):
            what = "" if step == "train" else "its evaluation "
            self._fail(run, "failed", f"{what}ended with {code}: {child.last_line()}")
        elif step == "score":
            self._finish(run)
        elif not has_begun(self._folder / run.name):
            self._fail(
                run,
                "interrupted",
                f"{STOPPED} a signal before training started; the same command starts it",
            )
        elif (reason := read_run(self._folder / run.name).reason).startswith(STOPPED):
            self._fail(run, "interrupted", reason)
        else:
            self._waiting.insert(0, run)

    def _may_be_free_later(self, run: PlannedRun) -> bool:
        """Whether its folder was in use; a port that is taken is tried once more."""
        if is_in_use(self._folder / run.name):
            return True
        is_first = run.name not in self._refused  # the holder of its folder may just have left
        self._refused.add(run.name)
        return is_first

    def _stopped(self, run: PlannedRun, step: Step, code: int) -> None:
        if step == "train" and code not in (*_DONE, ExitCode.KILLED):
            self._fail(run, "failed", f"ended with {code} when it was to save")
        else:
            self._fail(run, "interrupted", f"{STOPPED} a signal")

    def _fail(self, run: PlannedRun, outcome: Outcome, reason: str) -> None:
        self.outcomes[run.name], self.reasons[run.name] = outcome, reason
        log = self._folder / "logs" / f"{run.name}.log"
        self._say(f"{run.name}: {outcome}: {reason} ({log})")

    def _finish(self, run: PlannedRun) -> None:
        self.outcomes[run.name] = "finished"
        self.reasons.pop(run.name, None)
        number = list(self.outcomes.values()).count("finished")
        self._say(f"{run.name}: finished, {number} of {self._num_runs}")

    def _obey(self, event: _Signal) -> bool:
        """Whether it is the second signal."""
        if is_repeat(self._first_signal, event.seconds):
            return False
        if self._first_signal is not None:
            return True
        self._first_signal = event.seconds
        number = len(self._busy)
        self._say(
            f"ending {number} run{'s' * (number != 1)}, after a save; the same command resumes"
        )
        for child in self._busy:
            child.send(signal.SIGTERM)
        return False

    def _report(self) -> None:
        """Says now and then how far the runs are that are under way."""
        if self._clock() < self._next_report:
            return
        self._next_report = self._clock() + _REPORT_SECONDS
        for run, step in self._busy.values():
            if step == "train":
                record = read_run(self._folder / run.name)
                last = "" if record.last is None else f", last evaluation {score(record.last)}"
                what = record.reason if record.state == "running" else "starting"
                self._say(f"{run.name}: {what}, {record.env_steps:,} steps{last}")
