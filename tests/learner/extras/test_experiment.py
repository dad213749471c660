"""Grids as files, and `seedrl experiment` with runs that only write what a run leaves."""

import os
from pathlib import Path

import pytest

from learner.cli.main import main
from learner.extras.experiment import (
    Experiment,
    Runs,
    has_trained,
    read_grid,
)
from learner.processes.locks import lock
from learner.report.status import STOPPED
from seedrl import config_io
from seedrl.config_io import to_json
from seedrl.errors import ConfigError
from seedrl.exit_codes import ExitCode
from seedrl.fields import with_fields

SMALL = 'configs = ["cartpole_r2d2"]\nseeds = [0]\n'


def grid(folder: Path, text: str) -> Runs:
    path = folder / "my_grid.toml"
    path.write_text(text)
    return read_grid(path)


def test_a_grid_is_the_product_of_configs_values_and_seeds(tmp_path: Path) -> None:
    text = """
configs = ["cartpole_r2d2", "own/config.py"]
seeds = [0, 7]

[options]
learning.total_steps = 20_000
checkpoint.replay = true
logging.learning_curve = false

[vary]
replay.ratio = [1, 4.0]
agent.network.torso-sizes = [[64], [32, 16]]
"""
    runs = grid(tmp_path, text)
    assert len(runs) == 2 * 2 * 2 * 2
    assert list(runs)[:3] == [
        "cartpole_r2d2__replay.ratio=1__agent.network.torso-sizes=64__seed=0",
        "cartpole_r2d2__replay.ratio=1__agent.network.torso-sizes=64__seed=7",
        "cartpole_r2d2__replay.ratio=1__agent.network.torso-sizes=32x16__seed=0",
    ]
    options = ["--learning.total-steps", "20000", "--checkpoint.replay"]
    options += ["--logging.no-learning-curve"]
    varied = ["--replay.ratio", "4.0", "--agent.network.torso-sizes", "32", "16"]
    config = str(tmp_path.resolve() / "own" / "config.py")
    assert list(runs.values())[-1] == (config, "--seed", "7", *options, *varied)


def test_arguments_of_an_environment_may_be_a_table(tmp_path: Path) -> None:
    (words,) = grid(tmp_path, SMALL + "options.environment.arguments = {length = 5}").values()
    assert words[-2:] == ("--environment.arguments", '{"length": 5}')
    runs = grid(tmp_path, SMALL + "vary.environment.arguments = [{length = 5}, {length = 6}]")
    assert [words[-1] for words in runs.values()] == ['{"length": 5}', '{"length": 6}']


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("configs = [", "TOML"),
        (SMALL + "x = 1", "x: "),
        ("seeds = [0]", "configs: "),
        ('configs = ["a"]\nseeds = 3', "seeds: "),
        ('configs = ["a"]\nseeds = ["0"]', "seeds: "),
        (SMALL + "[vary]\nreplay.ratio = 4", "vary.replay.ratio: "),
        (SMALL + "[options]\nseed = 4", "see seeds"),
        ('configs = ["a/x.py", "b/x.py"]\nseeds = [0]', "x__seed=0"),
        (SMALL + f"[vary]\nname = ['{'n' * 300}']", "vary: "),
    ],
)
def test_a_grid_that_plans_nothing_sensible_is_refused(
    tmp_path: Path, text: str, field: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        grid(tmp_path, text)
    assert field in str(refused.value) and "my_grid.toml" in str(refused.value)


# A stand-in for `seedrl train`, which does what its configuration is named for, and for `evaluate`.
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
    assert words[2:] == ["--episodes", "100", "--deterministic", "--save"]
    score = {"mean": 1.0, "episodes": 100, "updates": 7, "exploration": 0.0}
    (folder / "final_score.json").write_text(json.dumps(score))
    sys.exit(0)
folder.mkdir(exist_ok=True)
(folder / "command.txt").write_text(shlex.join(["seedrl", *words]) + "\\n")
print("trained", flush=True)
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


def planned(act: str, number: int = 0) -> Runs:
    return {f"{act}{number}": (act, "--seed", str(number))}


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for folder in (tmp_path / "learner", tmp_path / "learner" / "cli"):
        folder.mkdir()
        (folder / "__init__.py").touch()
    (tmp_path / "learner" / "cli" / "main.py").write_text(PROGRAM.replace("STOPPED", STOPPED))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x").mkdir()
    return tmp_path / "x"


def started(folder: Path) -> list[str]:
    path = folder / "started.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    path.unlink(missing_ok=True)
    return lines


def test_each_run_is_trained_and_scored_and_one_that_fails_ends_no_other(stage: Path) -> None:
    runs = planned("learns") | planned("fails") | planned("misses")
    experiment = Experiment(stage, runs, number=1, episodes=100)
    assert experiment.work(lambda: False) == ExitCode.FAULTS
    assert started(stage) == [
        *("train learns0", "evaluate learns0", "train fails0"),
        *("train misses0", "evaluate misses0"),
    ]
    states = {name: outcome.state for name, outcome in experiment.outcomes.items()}
    assert states == {"learns0": "finished", "fails0": "failed", "misses0": "finished"}
    assert "no more memory" in experiment.outcomes["fails0"].reason
    # Again, only what has failed is tried.
    again = Experiment(stage, runs, number=2, episodes=100)
    assert again.work(lambda: False) == ExitCode.FAULTS
    assert started(stage) == ["train fails0"]
    # A score that was saved by hand may be of exploring episodes, which are no others' measure.
    for path in stage.glob("learns0/final_score.json"):
        path.write_text(path.read_text().replace('"exploration": 0.0', '"exploration": 0.1'))
    Experiment(stage, planned("learns"), number=1, episodes=100).work(lambda: False)
    assert started(stage) == ["evaluate learns0"]


def test_a_signal_lets_runs_save_and_the_same_experiment_resumes(stage: Path) -> None:
    runs = planned("waits", 0) | planned("waits", 1) | planned("waits", 2)
    experiment = Experiment(stage, runs, number=2, episodes=100)

    def is_stopped() -> bool:
        logs = [stage / "logs" / f"waits{number}.log" for number in (0, 1)]
        return all(log.exists() and "waiting" in log.read_text() for log in logs)

    assert experiment.work(is_stopped) == ExitCode.OK
    assert sorted(started(stage)) == ["train waits0", "train waits1"]
    assert [outcome.state for outcome in experiment.outcomes.values()] == [
        *("interrupted", "interrupted", "not started")
    ]
    assert experiment.outcomes["waits0"].reason == f"{STOPPED} the end of the experiment"
    assert not has_trained(stage / "waits0", runs["waits0"])


GRID = (
    SMALL
    + """[options]
learning.total_steps = 20_000
[vary]
replay.ratio = [1, 4]
"""
)


@pytest.mark.usefixtures("stage")
def test_a_grid_becomes_folders_of_runs(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "my_grid.toml").write_text(GRID)
    assert main(["experiment", "my_grid.toml", "--workers", "2"]) == 0
    out, err = capfd.readouterr()
    names = [f"cartpole_r2d2__replay.ratio={ratio}__seed=0" for ratio in (1, 4)]
    rows = [line.split() for line in out.splitlines()[1:]]
    assert [row[:4] for row in rows] == [[name, "finished", "100", "–"] for name in names]
    assert all(float(row[4]) == 1.0 for row in rows)
    # Of two threads: the ends of their lines may come after both.
    assert all(f"{name}: trains" in err for name in names)
    folder = tmp_path / "runs" / "my_grid"
    assert (folder / "logs" / f"{names[0]}.log").read_text() == "trained\n"
    # The same again has nothing to do.
    assert main(["experiment", "my_grid.toml"]) == 0
    assert capfd.readouterr().out == out
    # A run of a config that was edited since is another one; only its steps may grow.
    saved, config = folder / names[0] / "config.json", config_io.load("cartpole_r2d2")
    shorter = {"replay.ratio": 1.0, "learning.total_steps": 10_000, "serving.bind": "unix:/a"}
    for fields, code in ((shorter, 0), (shorter | {"agent.gamma": 0.5}, 2)):
        saved.write_text(to_json(with_fields(config, fields)))
        assert main(["experiment", "my_grid.toml"]) == code
        assert ("agent.gamma 0.99" in capfd.readouterr().err) == bool(code)
    saved.unlink()
    # A run that was continued by hand is the same, but with other options.
    with (folder / names[0] / "command.txt").open("a") as commands:
        # The last line is of a start that a full disk has refused.
        commands.write(f"seedrl resume 'x y/{names[0]}' --allow a b\n")
        commands.write("seedrl resume x --allow=a\nseedrl train x 'y")
    assert main(["experiment", "my_grid.toml"]) == 0
    assert capfd.readouterr().out == out
    for other in ("resume x --agent.gamma 0.9", "train cartpole_r2d2 --seed 4"):
        (folder / names[0] / "command.txt").write_text(f"seedrl {other}\n")
        assert main(["experiment", "my_grid.toml"]) == 2
        assert names[0] in capfd.readouterr().err


def test_what_cannot_be_trained_is_refused_before_anything_begins(
    stage: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for before, after, named in (
        ("ratio", "ration", "--replay.ration"),
        ("20_000", "-1", "learning.total_steps"),
        ("cartpole_r2d2", "carpole", "carpole"),
        ("seeds = [0]", "seeds = [0, 2_147_483_648]", "seed=2147483648"),
        ("[options]", '[options]\nprofile = "nosuch.json"', "--profile"),
    ):
        Path("my_grid.toml").write_text(GRID.replace(before, after))
        assert main(["experiment", "my_grid.toml"]) == 2
        said = capsys.readouterr().err
        assert named in said and len(said.splitlines()) == 1 and not Path("runs").exists()
    Path("my_grid.toml").write_text(GRID)
    descriptor = lock(stage)
    assert main(["experiment", "my_grid.toml", "--workdir", "x"]) == 75
    os.close(descriptor)
    assert str(stage) in capsys.readouterr().err
