"""The processes of an experiment: N at a time, until every run of a grid is done.

How far a run is, is read from the files of its folder: an experiment is resumed by starting it
again.
"""

import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from queue import SimpleQueue
from typing import Literal, NamedTuple

from learner.checkpoints.run_records import read_final_score, read_run
from learner.extras.grid import PlannedRun
from learner.processes.env_servers import Child, child_environment
from learner.report.panel import score
from learner.report.status import STOPPED
from seedrl import run_files
from seedrl.config_io import to_allow
from seedrl.errors import ConfigError
from seedrl.exit_codes import ExitCode
from seedrl.run_files import read_regular

Step = Literal["train", "score"]

# How a run ends that is done: a target that was missed is a result too.
_DONE = frozenset({ExitCode.OK, ExitCode.TARGET_MISSED})
# What may grow: a run of fewer steps is trained on.
_MAY_GROW = "--learning.total-steps"
_NOT_OF_THE_GRID = ("--workdir", "--resume")
_LOOK_SECONDS = 1.0
_REPORT_SECONDS = 30.0
_TAIL_BYTES = 2**16


class Outcome(NamedTuple):
    """How far a run has come, and why it has not finished."""

    state: Literal["finished", "failed", "interrupted", "not started"]
    reason: str = ""


class Experiment:
    """Owns the processes that train and score runs, each watched by a thread of its own.

    A run that fails is kept, and ends no other. The kernel kills the processes if this one is
    killed; the same experiment continues from their newest checkpoints.

    Attributes:
      outcomes: of each run by name.
    """

    def __init__(
        self, folder: Path, runs: Sequence[PlannedRun], *, number: int, episodes: int
    ) -> None:
        """Starts nothing yet.

        Args:
          folder: of the experiment; each run has one of its name in it.
          runs: in the order in which they are begun.
          number: of processes at a time.
          episodes: of final scores.
        """
        self._folder, self._runs, self._number = folder, runs, number
        self._episodes = episodes
        self._is_ending = threading.Event()
        # Guards `_children`: a process that is started while the experiment ends must be told too.
        self._lock = threading.Lock()
        self._children: dict[str, Child] = {}
        self.outcomes = {run.name: Outcome("not started") for run in runs}

    def work(self, is_stopped: Callable[[], bool]) -> int:
        """Works until all runs are done, or have saved because it is stopped: an `ExitCode`."""
        next_report = time.monotonic() + _REPORT_SECONDS
        with ThreadPoolExecutor(self._number, "run") as pool:
            working = [pool.submit(self._work_on, run) for run in self._runs]
            while wait(working, timeout=_LOOK_SECONDS).not_done:
                if is_stopped() and not self._is_ending.is_set():
                    self._end()
                if time.monotonic() > next_report:
                    next_report = time.monotonic() + _REPORT_SECONDS
                    self._report()
        for each in working:
            each.result()
        states = {outcome.state for outcome in self.outcomes.values()}
        bad = {"failed"} if self._is_ending.is_set() else {"failed", "interrupted"}
        return ExitCode.FAULTS if bad & states else ExitCode.OK

    def _work_on(self, run: PlannedRun) -> None:
        """In a thread: trains a run and plays its final score, as far as that is left to do."""
        folder, has_trained = self._folder / run.name, False
        while not self._is_ending.is_set():
            step = next_step(folder, run, episodes=self._episodes)
            # A run that has confirmed its target keeps its earlier command; it is not begun twice.
            if step == "train" and has_trained:
                step = "score"
            if step is None or ((outcome := self._do(run, step)) is None and step == "score"):
                outcome = Outcome("finished")
            if outcome is not None:
                self.outcomes[run.name] = outcome
                reason = f": {outcome.reason} ({self._log(run)})" if outcome.reason else ""
                _say(f"{run.name}: {outcome.state}{reason}")
                return
            has_trained = True

    def _do(self, run: PlannedRun, step: Step) -> Outcome | None:
        """Trains or scores a run: how that ended, None if well."""
        folder = self._folder / run.name
        words = ["train", *run.words, "--workdir", str(folder)]
        if step == "score":
            words = ["evaluate", str(folder), "--episodes", str(self._episodes)]
            words += ["--greedy", "--save", *_allowing(folder)]
        _say(f"{run.name}: {'trains' if step == 'train' else 'plays its final score'}")
        code = self._run(run, words)
        what = "" if step == "train" else "its evaluation "
        if self._is_ending.is_set() and (code in _DONE or code == ExitCode.KILLED or what):
            return Outcome("interrupted", STOPPED)
        if code not in (_DONE if step == "train" else {ExitCode.OK}):
            return Outcome("failed", f"{what}ended with {code}: {_last_line(self._log(run))}")
        if step == "train":
            reason = read_run(folder).reason
            if command_of(folder) is None or reason.startswith(STOPPED):
                return Outcome("interrupted", reason or STOPPED)
        return None

    def _run(self, run: PlannedRun, words: Sequence[str]) -> int:
        ended: SimpleQueue[int] = SimpleQueue()
        self._log(run).parent.mkdir(exist_ok=True)
        with self._log(run).open("ab") as log, self._lock:
            if self._is_ending.is_set():
                return ExitCode.KILLED
            command = [sys.executable, "-m", "learner.cli.main", *words]
            self._children[run.name] = Child(
                command, child_environment(), on_exit=ended.put, output=log
            )
        code = ended.get()
        with self._lock:
            del self._children[run.name]
        return code

    def _end(self) -> None:
        """Lets all runs save; nothing is started any more."""
        with self._lock:
            self._is_ending.set()
            for child in self._children.values():
                child.send(signal.SIGTERM)
        _say("ending after a save; the same command resumes")

    def _report(self) -> None:
        with self._lock:
            names = list(self._children)
        for name in names:
            record = read_run(self._folder / name)
            last = "" if record.last is None else f", last evaluation {score(record.last)}"
            _say(f"{name}: {record.reason}, {record.env_steps:,} steps{last}")

    def _log(self, run: PlannedRun) -> Path:
        return self._folder / "logs" / f"{run.name}.log"


def next_step(folder: Path, run: PlannedRun, *, episodes: int) -> Step | None:
    """What is left to do for a run: to train it, or to play its final score; None if nothing.

    `folder`: of the run; it need not be there. `episodes`: of its final score, at least.
    """
    command = command_of(folder)
    if command is None or _words(command) != [*run.words]:
        return "train"
    if read_run(folder).state != "finished":
        return "train"
    kept = read_final_score(folder)
    return None if kept is not None and kept.episodes >= episodes else "score"


def check_same(folder: Path, run: PlannedRun) -> None:
    """Raises ConfigError if the folder holds a run of other options; only its steps may grow."""
    command = command_of(folder)
    if command is None:
        return
    before, now = (_without(each, (_MAY_GROW,)) for each in (_words(command), [*run.words]))
    if before != now:
        raise ConfigError(
            f"{folder}: expected the run `seedrl train {shlex.join(run.words)}`, found "
            f"`{command}`; choose another --workdir, or remove that folder"
        )


def command_of(folder: Path) -> str | None:
    """What the run was last started with; None if it has not begun."""
    try:
        lines = read_regular(folder / run_files.COMMANDS).decode(errors="replace").splitlines()
    except OSError:
        return None
    return lines[-1] if lines else None


def _words(command: str) -> list[str]:
    """Words of `seedrl train`, as a grid plans them."""
    return _without(shlex.split(command)[2:], _NOT_OF_THE_GRID)


def _without(words: list[str], flags: tuple[str, ...]) -> list[str]:
    """Without these flags and the value of each."""
    pairs = zip(words, ["", *words], strict=False)
    return [word for word, before in pairs if word not in flags and before not in flags]


def _allowing(run: Path) -> list[str]:
    """It is this experiment that has trained the run: what that needed is allowed."""
    try:
        words = to_allow(read_regular(run / run_files.CONFIG).decode())
    except (OSError, ValueError, KeyError, TypeError):
        return []  # the evaluation reports what is wrong
    return ["--allow", *words] if words else []


def _last_line(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
        lines = file.read().decode(errors="replace").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
