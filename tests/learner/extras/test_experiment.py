"""An experiment's processes, played by a program that writes what a run leaves in its folder."""

import json
import shlex
from pathlib import Path

import pytest

from learner.extras.experiment import Experiment, check_same, next_step
from learner.extras.grid import PlannedRun
from learner.report.status import STOPPED
from seedrl.errors import ConfigError
from seedrl.exit_codes import ExitCode

# `own` does what the number of its run is named for.
PROGRAM = """
import json, pathlib, shlex, signal, sys
words = sys.argv[1:]
folder = pathlib.Path(words[words.index("--workdir") + 1] if words[0] == "train" else words[1])
with (folder.parent / "started.txt").open("a") as file:
    file.write(f"{words[0]} {folder.name}\\n")
def finish(reason, code=0):
    status = {"state": "finished", "reason": reason, "env_steps": 100, "updates": 7}
    (folder / "status.json").write_text(json.dumps(status))
    sys.exit(code)
if words[0] == "evaluate":
    score = {"mean": 1.0, "episodes": 100, "updates": 7, "greedy": True}
    (folder / "final_score.json").write_text(json.dumps(score))
    sys.exit(0)
folder.mkdir(exist_ok=True)
(folder / "command.txt").write_text(shlex.join(["seedrl", *words]))
act = words[1]
if act == "fails":
    print("seedrl: error: no more memory")
    sys.exit(70)
if act == "waits":
    signal.signal(signal.SIGTERM, lambda *_: finish("STOPPED SIGTERM"))
    print("waiting", flush=True)
    while True:
        signal.pause()
finish("all 100 steps taken", 1 if act == "misses" else 0)
"""


def planned(act: str, number: int = 0) -> PlannedRun:
    return PlannedRun(f"{act}{number}", (act, "--seed", str(number)))


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for folder in (tmp_path / "learner", tmp_path / "learner" / "cli"):
        folder.mkdir()
        (folder / "__init__.py").touch()
    (tmp_path / "learner" / "cli" / "main.py").write_text(PROGRAM.replace("STOPPED", STOPPED))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x").mkdir()
    return tmp_path / "x"


def work(folder: Path, *runs: PlannedRun, number: int = 2) -> tuple[int, Experiment]:
    experiment = Experiment(folder, runs, number=number, episodes=100)
    return experiment.work(lambda: False), experiment


def started(folder: Path) -> list[str]:
    path = folder / "started.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    path.unlink(missing_ok=True)
    return lines


def test_each_run_is_trained_and_scored_and_one_that_fails_ends_no_other(stage: Path) -> None:
    runs = planned("learns"), planned("fails"), planned("misses")
    code, experiment = work(stage, *runs, number=1)
    assert code == ExitCode.FAULTS
    assert started(stage) == [
        *("train learns0", "evaluate learns0", "train fails0"),
        *("train misses0", "evaluate misses0"),
    ]
    states = {name: outcome.state for name, outcome in experiment.outcomes.items()}
    assert states == {"learns0": "finished", "fails0": "failed", "misses0": "finished"}
    assert "no more memory" in experiment.outcomes["fails0"].reason
    # Again, only what has failed is tried.
    assert work(stage, *runs)[0] == ExitCode.FAULTS
    assert started(stage) == ["train fails0"]


def test_a_signal_lets_runs_save_and_the_same_experiment_resumes(stage: Path) -> None:
    runs = planned("waits", 0), planned("waits", 1), planned("waits", 2)
    experiment = Experiment(stage, runs, number=2, episodes=100)

    def is_stopped() -> bool:
        logs = [stage / "logs" / f"waits{number}.log" for number in (0, 1)]
        return all(log.exists() and "waiting" in log.read_text() for log in logs)

    assert experiment.work(is_stopped) == ExitCode.OK
    assert sorted(started(stage)) == ["train waits0", "train waits1"]
    assert [outcome.state for outcome in experiment.outcomes.values()] == [
        *("interrupted", "interrupted", "not started")
    ]
    assert next_step(stage / "waits0", runs[0], episodes=100) == "train"


def test_steps_of_a_run_follow_from_its_files(tmp_path: Path) -> None:
    run = planned("learns")
    folder = tmp_path / run.name
    assert next_step(folder, run, episodes=100) == "train"
    folder.mkdir()
    (folder / "command.txt").write_text(shlex.join(["seedrl", "train", *run.words]))
    assert next_step(folder, run, episodes=100) == "train"
    status = {"state": "finished", "reason": "all taken", "updates": 7}
    (folder / "status.json").write_text(json.dumps(status))
    assert next_step(folder, run, episodes=100) == "score"
    score = {"mean": 1.0, "episodes": 100, "updates": 7, "greedy": True}
    (folder / "final_score.json").write_text(json.dumps(score))
    assert next_step(folder, run, episodes=100) is None
    assert next_step(folder, run, episodes=200) == "score"
    # More steps of the same run are trained; another one is refused.
    more = PlannedRun(run.name, (*run.words, "--learning.total-steps", "900"))
    check_same(folder, more)
    assert next_step(folder, more, episodes=100) == "train"
    with pytest.raises(ConfigError, match="learns0"):
        check_same(folder, PlannedRun(run.name, (*run.words, "--replay.ratio", "2")))
