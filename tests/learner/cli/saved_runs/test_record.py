"""`seedrl record`: what is started and played, and what is said of it."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from learner.cli.main import main
from learner.cli.saved_runs import record
from learner.launch.child import Command
from learner.session.offline_evaluation import Evaluation
from seedrl import config_file
from seedrl.config import Config
from seedrl.config_json import to_json

RESULT = Evaluation(2.0, 0.5, 1.0, 3.0, 2, 7, returns=(1.0, 3.5))


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(to_json(config_file.load("cartpole_r2d2")))
    return tmp_path


def test_one_environment_is_filmed_and_each_film_is_a_line(
    run_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    played: list[tuple[list[Command], Config, Any]] = []

    def play(supervisor: list[Command], config: Config, options: Any, **_: Any) -> Evaluation:
        played.append((supervisor, config, options))
        return RESULT

    monkeypatch.setattr(record, "Supervisor", lambda commands, restarts: commands)
    monkeypatch.setattr(record, "play", play)
    assert main(["record", str(run_folder), "--episodes", "2", "--best"]) == 0
    films = run_folder / "videos"
    assert capsys.readouterr().out == (
        f"{films}/episode_000.mp4: return 1\n{films}/episode_001.mp4: return 3.5\n"
    )
    (((command,), config, options),) = played
    assert command.arguments[-2:] == ("--films", str(films))
    assert command.arguments[command.arguments.index("--num-envs") + 1] == "1"
    assert (config.serving.training_slots, config.serving.evaluation_slots) == (1, 0)
    assert (options.episodes, options.best) == (2, True)


def test_a_missing_extra_is_one_line(
    run_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *rest: None if name == "imageio_ffmpeg" else find(name, *rest),
    )
    assert main(["record", str(run_folder)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "pip install 'seedrl[video]'" in error
