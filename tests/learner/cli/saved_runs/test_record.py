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
from seedrl.exit_codes import ExitCode

RESULT = Evaluation(2.0, 0.5, 1.0, 3.0, 2, 7, 7, returns=(1.0, 3.5))


def _film(commands: list[Command], number: int) -> None:
    """What the env server leaves behind: `number` films, and one that is not complete."""
    (command,) = commands
    folder = Path(command.arguments[command.arguments.index("--films") + 1])
    for index in range(number):
        (folder / f"episode_{index:03}.mp4").touch()
    (folder / f"episode_{number:03}.mp4.partial").touch()


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
        _film(supervisor, 2)
        return RESULT

    monkeypatch.setattr(record, "Supervisor", lambda commands, restarts: commands)
    monkeypatch.setattr(record, "play", play)
    assert main(["record", str(run_folder), "--episodes", "2", "--best"]) == 0
    films = run_folder / "videos"
    assert capsys.readouterr().out == (
        f"{films}/episode_000.mp4: return 1\n{films}/episode_001.mp4: return 3.5\n"
    )
    (((command,), config, options),) = played
    assert sorted(path.name for path in films.iterdir()) == ["episode_000.mp4", "episode_001.mp4"]
    assert command.arguments[command.arguments.index("--num-envs") + 1] == "1"
    assert (config.serving.training_slots, config.serving.evaluation_slots) == (1, 0)
    assert (options.episodes, options.best) == (2, True)


@pytest.mark.parametrize("outcome", [RESULT, ExitCode.FAILED_FILMS])
def test_only_films_that_were_written_now_are_reported(
    run_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    outcome: Evaluation | int,
) -> None:
    films = run_folder / "videos"
    films.mkdir()
    (films / "episode_001.mp4").write_text("of an earlier command")

    def play(supervisor: list[Command], *_: Any, **__: Any) -> Evaluation | int:
        _film(supervisor, 1)
        return outcome

    monkeypatch.setattr(record, "Supervisor", lambda commands, restarts: commands)
    monkeypatch.setattr(record, "play", play)
    assert main(["record", str(run_folder), "--episodes", "2"]) == ExitCode.FAILED_FILMS
    said = capsys.readouterr()
    is_scored = isinstance(outcome, tuple)
    assert said.out == (f"{films}/episode_000.mp4: return 1\n" if is_scored else "")
    assert said.err == (f"seedrl record: 1 of 2 films were written in {films}: episode_000.mp4\n")
    assert sorted(path.name for path in films.iterdir()) == ["episode_000.mp4", "episode_001.mp4"]
    assert (films / "episode_001.mp4").read_text() == "of an earlier command"


def test_films_that_have_no_folder_are_one_line(
    run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = run_folder / "config.json"
    assert main(["record", str(run_folder), "--output", str(file)]) == 2
    error = capsys.readouterr().err
    assert error == f"seedrl: error: --output: cannot make {file}: File exists\n"


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
