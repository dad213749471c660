"""`seedrl experiment` with runs that only write what a run leaves."""

import os
from pathlib import Path

import pytest

from learner.checkpoints.folder_lock import lock
from learner.cli.main import main

GRID = """
configs = ["cartpole_r2d2"]
seeds = [3]
[options]
learning.total_steps = 20_000
[vary]
replay.ratio = [1, 4]
"""
# A stand-in for `seedrl train`, which misses its target, and for `seedrl evaluate`.
PROGRAM = """
import json, pathlib, shlex, sys
words = sys.argv[1:]
if words[0] == "train":
    folder = pathlib.Path(words[words.index("--workdir") + 1])
    folder.mkdir()
    (folder / "command.txt").write_text(shlex.join(["seedrl", *words]))
    status = {"state": "finished", "reason": "all taken", "env_steps": 20_005, "updates": 7}
    (folder / "status.json").write_text(json.dumps(status))
    print("trained", flush=True)
    sys.exit(1)
assert words[2:] == ["--episodes", "100", "--deterministic", "--save"]
score = {"mean": 47.25, "episodes": 100, "updates": 7, "exploration": 0.0}
pathlib.Path(words[1], "final_score.json").write_text(json.dumps(score))
"""


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for folder in (tmp_path / "learner", tmp_path / "learner" / "cli"):
        folder.mkdir()
        (folder / "__init__.py").touch()
    (tmp_path / "learner" / "cli" / "main.py").write_text(PROGRAM)
    (tmp_path / "my_grid.toml").write_text(GRID)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_grid_becomes_folders_of_runs(stage: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["experiment", "my_grid.toml", "--workers", "2"]) == 0
    out, err = capfd.readouterr()
    names = [f"cartpole_r2d2__replay.ratio={ratio}__seed=3" for ratio in (1, 4)]
    assert out.splitlines() == [
        "run                                    state     steps   last  final  why",
        f"{names[0]}  finished  20,005  –     47.25  all taken",
        f"{names[1]}  finished  20,005  –     47.25  all taken",
    ]
    assert all(f"{name}: trains\n" in err for name in names)
    folder = stage / "runs" / "my_grid"
    assert (folder / "logs" / f"{names[0]}.log").read_text() == "trained\n"
    # The same again has nothing to do.
    assert main(["experiment", "my_grid.toml"]) == 0
    assert capfd.readouterr().out == out
    (folder / names[0] / "command.txt").write_text("seedrl train cartpole_r2d2 --seed 4")
    assert main(["experiment", "my_grid.toml"]) == 2
    assert f"{names[0]}: expected the run `seedrl train cartpole_r2d2" in capfd.readouterr().err


def test_what_cannot_be_trained_is_refused_before_anything_begins(
    stage: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for before, after, named in (
        ("ratio", "ration", "--replay.ration"),
        ("20_000", "-1", "learning.total_steps"),
        ("cartpole_r2d2", "carpole", "carpole"),
    ):
        (stage / "my_grid.toml").write_text(GRID.replace(before, after))
        assert main(["experiment", "my_grid.toml"]) == 2
        said = capsys.readouterr().err
        assert named in said and len(said.splitlines()) == 1 and not (stage / "runs").exists()


def test_a_folder_has_one_experiment_at_a_time(
    stage: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (stage / "x").mkdir()
    descriptor = lock(stage / "x")
    assert main(["experiment", "my_grid.toml", "--workdir", "x"]) == 75
    os.close(descriptor)
    assert str(stage / "x") in capsys.readouterr().err
