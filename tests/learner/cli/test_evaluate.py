"""`seedrl evaluate` with env servers that only pretend, and a result that is given."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

import learner.evaluate
from learner.checkpoints.run_records import read_final_score
from learner.cli.main import main
from learner.evaluate import Evaluation
from seedrl import checkpoints, config_io
from seedrl.config import Config
from seedrl.config_io import to_json

NUMBERS: dict[str, Any] = {"mean": 2.0, "standard_error": 0.5, "minimum": 1.0, "maximum": 3.0}
NUMBERS |= {"metrics": {"won": 0.5, "none": math.nan}, "exploration": 0.0}
RESULT = Evaluation(
    **NUMBERS,
    episodes=2,
    updates=7,
    step=7,
    returns=(1.0, 3.0),
    lengths=(10, 30),
    mean_length=20.0,
    cut=1,
)
PAUSE = "import signal; signal.pause()"
Calls = list[tuple[Config, int]]


@pytest.fixture
def run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a saved config, in a folder with an `envs_server` that does nothing."""
    (tmp_path / "envs_server").mkdir()
    # Without it the folder is no rival to an installed package of that name.
    (tmp_path / "envs_server" / "__init__.py").touch()
    (tmp_path / "envs_server" / "__main__.py").write_text(PAUSE)
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.json").write_text(to_json(config_io.load("cartpole_r2d2")))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    # Folders that other tests of this process have imported from would come before the stand-in.
    monkeypatch.setattr("seedrl.config_io._folders", [])
    return folder


def stand_in(monkeypatch: pytest.MonkeyPatch) -> Calls:
    calls: Calls = []

    def evaluate(config: Config, checkpoint: Any, *, episodes: int, **_: Any) -> Evaluation:
        assert checkpoint == {"step": None, "is_best": False, "parts": checkpoints.PARAMS}
        assert config.environment.vectorization == "seeded"
        calls.append((config, episodes))
        return RESULT

    monkeypatch.setattr(learner.evaluate, "evaluate", evaluate)
    monkeypatch.setattr(checkpoints, "choose", lambda workdir, **which: which)
    return calls


def test_the_result_is_one_line_or_json(
    run_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = stand_in(monkeypatch)
    assert main(["evaluate", str(run_folder), "--episodes", "8", "--env-servers", "1"]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("return 2.00 ± 0.50")
    assert "length 20" in captured.out and "won 0.5" in captured.out
    (line,) = captured.err.splitlines()
    assert "1 episodes" in line and "--max-episode-steps" in line and "6 were not" in line
    ((config, episodes),) = calls
    assert (episodes, config.launch.env_servers) == (8, 1)
    assert config.serving.bind.startswith("unix:/")
    assert config.serving.training_slots == config_io.load("cartpole_r2d2").serving.training_slots
    assert not [*(run_folder / "logs").iterdir()]
    assert main(["evaluate", str(run_folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        **RESULT._asdict(),
        "returns": [1.0, 3.0],
        "lengths": [10, 30],
        "metrics": {"won": 0.5, "none": None},
    }


def test_a_run_that_names_code_is_played_only_if_that_is_allowed(
    run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = run_folder / "config.json"
    document = json.loads(path.read_text())
    document["config"]["environment"] |= {"id": "subprocess:run", "wrappers": ["other:wrap"]}
    path.write_text(json.dumps(document))
    assert main(["evaluate", str(run_folder)]) == 2
    assert "add --allow subprocess:run other:wrap" in capsys.readouterr().err


def test_the_result_is_kept_as_the_final_score_of_the_run(
    run_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch)
    assert main(["evaluate", str(run_folder)]) == 0
    assert read_final_score(run_folder) is None
    assert main(["evaluate", str(run_folder), "--deterministic", "--save"]) == 0
    (run_folder / "status.json").write_text('{"updates": 7}')
    assert read_final_score(run_folder) == (2.0, 2, 7, 0.0)
    # The run was trained on, so that is not its final score any more.
    (run_folder / "status.json").write_text('{"updates": 8}')
    assert read_final_score(run_folder) is None
