"""An experiment's processes: who is started when, and what is made of how they end.

The processes are objects that write what a run leaves in its folder.
"""

import json
import os
import shlex
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from learner.experiment.grid import PlannedRun
from learner.experiment.run_state import check_same, next_step
from learner.experiment.workers import Workers
from learner.launch.child import Child, Command
from learner.saving.folder_lock import lock
from seedrl.errors import ConfigError
from seedrl.exit_codes import ExitCode

RUNS = [PlannedRun(f"run{number}", ("own", "--seed", str(number))) for number in range(3)]
EVERY = [f"{step} run{number}" for number in range(3) for step in ("train", "evaluate")]
# What a process does: it writes into the run's folder and gives its exit code; None runs on.
Act = Callable[[Path], int | None]


def begins(folder: Path, words: tuple[str, ...] = RUNS[0].words) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    command = shlex.join(["seedrl", "train", *words, "--workdir", str(folder)])
    (folder / "command.txt").write_text(f"{command}\n")


def ends(folder: Path, reason: str = "all 100 steps taken", code: int = 0) -> int:
    status = {"state": "finished", "reason": reason, "time_seconds": 1.0, "updates": 7}
    (folder / "status.json").write_text(json.dumps(status))
    return code


def scores(folder: Path) -> int:
    score = {"mean": 1.0, "episodes": 100, "updates": 7, "greedy": True}
    (folder / "final_score.json").write_text(json.dumps(score))
    return 0


class FakeChild:
    """A process that has done its work at once, or runs until it gets a signal."""

    def __init__(self, command: Command, on_exit: Callable[["FakeChild", int], None], act: Act):
        self.command, self._on_exit = command, on_exit
        self.signals: list[int] = []
        self.folder = Path(command.arguments[-1 if "train" in command.arguments else 4])
        if "train" in command.arguments:
            begins(self.folder, command.arguments[4:-2])
        code = act(self.folder)
        if code is not None:
            on_exit(self, code)

    def send(self, number: int) -> None:
        self.signals.append(number)
        self._on_exit(self, ends(self.folder, "stopped by SIGTERM"))

    def end(self, seconds: float) -> None:
        self.signals.append(signal.SIGKILL)

    def last_line(self) -> str:
        return "the last line"


class Stage:
    """An experiment, and what its processes do.

    Attributes:
      acts: by `train NAME` or `evaluate NAME`; by default a run ends and is scored.
      started: the same words, in order.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.acts: dict[str, Act] = {}
        self.started: list[str] = []
        self.said: list[str] = []
        self.children: list[FakeChild] = []
        self.now = 0.0

    def workers(self, number: int = 1, *, say: Callable[[str], None] | None = None) -> Workers:
        return Workers(
            self.folder,
            RUNS,
            number=number,
            episodes=100,
            environment={},
            say=say or self.said.append,
            clock=lambda: self.now,
            start=self._start,  # type: ignore[arg-type]
        )

    def _start(self, command: Command, on_exit: Callable[[Child, int], None]) -> FakeChild:
        what = f"{command.arguments[3]} {command.name}"
        self.started.append(what)
        default: Act = ends if what.startswith("train") else scores
        child = FakeChild(command, on_exit, self.acts.get(what, default))  # type: ignore[arg-type]
        self.children.append(child)
        return child


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_every_run_is_trained_and_scored(stage: Stage) -> None:
    with stage.workers() as workers:
        assert workers.wait() == ExitCode.OK
    assert stage.started == EVERY
    assert set(workers.outcomes.values()) == {"finished"} and workers.reasons == {}
    words = stage.children[0].command.arguments[3:]
    folder = str(stage.folder / "run0")
    assert words == ("train", "own", "--seed", "0", "--workdir", folder)
    words = stage.children[1].command.arguments[3:]
    assert words == ("evaluate", folder, "--episodes", "100", "--greedy", "--save")
    # If we are killed, the kernel asks them to save.
    assert {child.command.ending for child in stage.children} == {signal.SIGTERM}


def test_so_many_are_trained_at_a_time(stage: Stage) -> None:
    stage.acts["train run0"] = stage.acts["train run1"] = lambda folder: None

    def say(line: str) -> None:
        if line == "run1: trains":
            assert stage.started == ["train run0", "train run1"]
            workers.signal(signal.SIGTERM)

    with stage.workers(2, say=say) as workers:
        assert workers.wait() == ExitCode.OK
    assert stage.started == ["train run0", "train run1"]


def test_what_is_done_is_not_done_again(stage: Stage) -> None:
    for number in (0, 1):
        begins(stage.folder / f"run{number}", RUNS[number].words)
        ends(stage.folder / f"run{number}")
    scores(stage.folder / "run0")
    begins(stage.folder / "run2", RUNS[2].words)  # killed: its status is not that of an end
    with stage.workers() as workers:
        assert workers.wait() == ExitCode.OK
    assert stage.started == ["evaluate run1", "train run2", "evaluate run2"]
    with stage.workers() as workers:
        assert workers.wait() == ExitCode.OK
    assert len(stage.started) == 3 and set(workers.outcomes.values()) == {"finished"}


def test_a_run_that_is_stopped_before_it_has_begun_is_trained_when_the_experiment_resumes(
    stage: Stage,
) -> None:
    def is_stopped(folder: Path) -> int:
        shutil.rmtree(folder)  # as the learner does with a new one
        return 0

    stage.acts["train run1"] = is_stopped
    with stage.workers() as workers:
        assert workers.wait() == ExitCode.FAILED_RUNS
    assert stage.started == [word for word in EVERY if word != "evaluate run1"]
    assert workers.outcomes["run1"] == "interrupted"
    assert "before training started" in workers.reasons["run1"]
    stage.acts, stage.started = {}, []
    with stage.workers() as workers:
        assert workers.wait() == ExitCode.OK
    assert stage.started == ["train run1", "evaluate run1"]


def test_a_failed_run_is_named_and_ends_no_other(stage: Stage) -> None:
    stage.acts["train run0"] = lambda folder: 70
    stage.acts["train run1"] = lambda folder: ends(folder, code=ExitCode.TARGET_MISSED)
    stage.acts["evaluate run2"] = lambda folder: 74
    with stage.workers() as workers:
        assert workers.wait() == ExitCode.FAILED_RUNS
    assert stage.started == [word for word in EVERY if word != "evaluate run0"]
    assert workers.outcomes == {"run0": "failed", "run1": "finished", "run2": "failed"}
    assert workers.reasons == {
        "run0": "ended with 70: the last line",
        "run2": "its evaluation ended with 74: the last line",
    }
    assert f"run0: failed: {workers.reasons['run0']} ({stage.folder}/logs/run0.log)" in stage.said
    # It is tried again.
    stage.acts, stage.started = {}, []
    with stage.workers() as workers:
        assert workers.wait() == ExitCode.OK
    assert stage.started == ["train run0", "evaluate run0", "evaluate run2"]


def test_a_run_that_somebody_else_ends_is_no_result(stage: Stage) -> None:
    stage.acts["train run0"] = lambda folder: ends(folder, "stopped by SIGTERM")
    with stage.workers() as workers:
        assert workers.wait() == ExitCode.FAILED_RUNS
    assert workers.outcomes["run0"] == "interrupted" and "evaluate run0" not in stage.started


def test_a_run_that_has_nothing_left_to_do_is_scored_once(stage: Stage) -> None:
    # It had confirmed its target when it was killed: its status never says that it has ended.
    stage.acts["train run0"] = lambda folder: 0
    with stage.workers() as workers:
        assert workers.wait() == ExitCode.OK
    assert stage.started == EVERY


def test_a_signal_lets_runs_save_and_a_second_does_not_wait(stage: Stage) -> None:
    stage.acts["train run0"] = lambda folder: workers.signal(signal.SIGINT)  # type: ignore[func-returns-value]
    with stage.workers() as workers:
        assert workers.wait() == ExitCode.OK
    assert workers.outcomes == {"run0": "interrupted", "run1": "not started", "run2": "not started"}
    assert stage.children[0].signals == [signal.SIGTERM]
    assert stage.said[-2] == "ending 1 run, after a save; the same command resumes"

    def twice(folder: Path) -> None:
        workers.signal(signal.SIGTERM)
        stage.now = 2.0
        workers.signal(signal.SIGTERM)

    stage.acts["train run0"] = twice  # type: ignore[assignment]
    with stage.workers() as workers:
        assert workers.wait() == ExitCode.KILLED
    assert stage.children[1].signals == [signal.SIGTERM, signal.SIGKILL]


def test_a_folder_that_is_still_in_use_is_waited_for(stage: Stage) -> None:
    (stage.folder / "run0").mkdir()
    descriptor = lock(stage.folder / "run0")

    def say(line: str) -> None:
        stage.said.append(line)
        if line == "run2: finished, 2 of 3":
            os.close(descriptor)

    with stage.workers(say=say) as workers:
        assert workers.wait() == ExitCode.OK
    assert stage.started == [*EVERY[2:], *EVERY[:2]]
    waits = "run0: another learner is using its folder; waiting for it to end"
    assert stage.said.count(waits) == 1 and workers.reasons == {}


def test_a_run_that_cannot_be_started_is_named_and_ends_no_other(stage: Stage) -> None:
    def fail(folder: Path) -> int:
        raise OSError(28, "No space left on device")

    stage.acts["train run0"] = fail
    with stage.workers() as workers:
        assert workers.wait() == ExitCode.FAILED_RUNS
    assert workers.outcomes == {"run0": "failed", "run1": "finished", "run2": "finished"}
    assert "No space left" in workers.reasons["run0"]


def test_a_port_that_is_taken_fails_a_run_at_its_second_try(stage: Stage) -> None:
    stage.acts["train run1"] = lambda folder: ExitCode.ADDRESS_IN_USE
    with stage.workers() as workers:
        assert workers.wait() == ExitCode.FAILED_RUNS
    assert stage.started.count("train run1") == 2 and workers.outcomes["run1"] == "failed"
    assert workers.reasons["run1"] == "ended with 98: the last line"


def test_a_run_whose_folder_is_taken_as_it_begins_is_begun_later(stage: Stage) -> None:
    held = []

    def is_taken(folder: Path) -> int:
        held.append(lock(folder))
        return ExitCode.ADDRESS_IN_USE

    def say(line: str) -> None:
        if line.startswith("run0: another learner"):
            stage.acts = {}
            os.close(held.pop())

    stage.acts["train run0"] = is_taken
    with stage.workers(say=say) as workers:
        assert workers.wait() == ExitCode.OK
    assert stage.started.count("train run0") == 2 and workers.reasons == {}


def test_a_run_of_other_options_is_refused_but_more_steps_are_trained(tmp_path: Path) -> None:
    words = ("own", "--seed", "0", "--learning.total-steps", "100", "--replay.ratio", "4")
    begins(tmp_path, words)
    ends(tmp_path)
    scores(tmp_path)
    run = PlannedRun("run", words)
    check_same(tmp_path, run)
    assert next_step(tmp_path, run, episodes=100) is None
    assert next_step(tmp_path, run, episodes=101) == "score"
    more = PlannedRun("run", (*words[:4], "200", *words[5:]))
    check_same(tmp_path, more)
    assert next_step(tmp_path, more, episodes=100) == "train"
    with pytest.raises(
        ConfigError, match=r"expected the run `seedrl train own --seed 0 .*ratio 1`"
    ):
        check_same(tmp_path, PlannedRun("run", (*words[:-1], "1")))


def test_a_run_does_not_shrink(tmp_path: Path) -> None:
    total = "--learning.total-steps"
    begins(tmp_path, ("own", "--seed", "0"))
    (tmp_path / "config.json").write_text('{"config": {"learning": {"total_steps": 200}}}')

    def planned(*words: str) -> PlannedRun:
        return PlannedRun("run", ("own", "--seed", "0", *words))

    check_same(tmp_path, planned())
    check_same(tmp_path, planned(total, "300"))
    with pytest.raises(ConfigError, match="found that of"):
        check_same(tmp_path, planned(total, "100"))
    # By hand it was trained on; the grid does not say how far.
    begins(tmp_path, ("own", "--seed", "0", total, "300"))
    check_same(tmp_path, planned(total, "300"))
    for words in ((total, "250"), ()):
        with pytest.raises(ConfigError, match="found that of"):
            check_same(tmp_path, planned(*words))
