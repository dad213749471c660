"""`seedrl record`: real videos of an environment that renders in many ways."""

import dataclasses
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest

from learner.cli import record
from learner.cli.main import main
from learner.cli.record import rgb
from seedrl import config_io, policy
from seedrl.config import EnvironmentConfig
from seedrl.config_io import to_json
from seedrl.exit_codes import ExitCode
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec

_FACTORY = f"{__name__}:make"
imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg")


class Pictured(gymnasium.Env[np.ndarray, np.int64]):
    """Episodes of ten steps with reward 1; `picture` is rendered, brighter with each step."""

    observation_space = gymnasium.spaces.Box(0, 1, (4,), np.float32)
    action_space: Any = gymnasium.spaces.Discrete(3, start=5)
    metadata: dict[str, Any] = {"render_fps": 10}  # noqa: RUF012
    picture: Any = None
    steps = 10
    actions: list[tuple[int, ...]] = []  # noqa: RUF012

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._count = 0
        return np.zeros(4, np.float32), {}

    def step(self, action: np.int64) -> Any:
        self.actions.append(tuple(np.ravel(action).tolist()))
        self._count += 1
        return np.zeros(4, np.float32), 1.0, self._count == self.steps, False, {}

    def render(self) -> Any:
        return type(self).picture(self._count)


def make(render_mode: str | None = None) -> Pictured:
    return Pictured(render_mode)


@pytest.fixture
def run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a run whose policy always takes its second action."""
    config = config_io.load("cartpole_r2d2")
    environment = dataclasses.replace(config.environment, id=_FACTORY)
    (tmp_path / "config.json").write_text(
        to_json(dataclasses.replace(config, environment=environment))
    )
    spec = EnvSpec(ArraySpec((4,), "float32"), DiscreteSpec(3))

    class Second(SimpleNamespace):
        def __call__(self, observation: Any, carry: Any, *, reward: float) -> Any:
            assert observation.shape == (4,)
            return self.action, carry

    loaded = Second(spec=spec, action=1, initial_carry=lambda: None)
    monkeypatch.setattr(policy, "load", lambda *_, **__: loaded)
    monkeypatch.setattr(Pictured, "actions", [])
    return tmp_path


def _record(folder: Path, *flags: str) -> int:
    return main(["record", str(folder), "--allow", _FACTORY, *flags])


def _frames(file: Path) -> np.ndarray:
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-i", str(file)]
    command += ["-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    data = subprocess.run(command, capture_output=True, check=True).stdout
    return np.frombuffer(data, np.uint8).reshape(-1, 64, 64, 3)


def _flat(value: Any, *channels: int, dtype: str = "uint8") -> np.ndarray:
    return np.full((64, 64, *channels), value, dtype)


def test_an_episode_is_a_video_with_a_picture_for_each_step(
    run_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(Pictured, "picture", lambda n: _flat([20 * n, 0, 100], 3))
    assert _record(run_folder, "--episodes", "2") == 0
    videos = run_folder / "videos"
    assert capsys.readouterr().out == (
        f"{videos}/episode_000.mp4: return 10\n{videos}/episode_001.mp4: return 10\n"
    )
    for file in sorted(videos.iterdir()):
        frames = _frames(file)
        assert len(frames) == 11
        for number in (0, 5, 10):
            seen = frames[number].mean(axis=(0, 1))
            np.testing.assert_allclose(seen, [20 * number, 0, 100], atol=12)
    assert set(Pictured.actions) == {(6,)}  # its actions begin with 5


def test_actions_are_chosen_as_in_the_evaluations_of_the_run(
    run_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pictured, "picture", lambda n: _flat(0))
    file = run_folder / "config.json"
    written, load, epsilons = file.read_text(), policy.load, [0.0]

    def seen(*_: Any, epsilon: float = 0.0, **__: Any) -> Any:
        epsilons.append(epsilon)
        return load("")

    monkeypatch.setattr(policy, "load", seen)

    def explored(actions: str, *flags: str) -> float:
        file.write_text(written.replace('"actions": "agent"', f'"actions": "{actions}"'))
        assert _record(run_folder, "--episodes", "1", *flags) == ExitCode.OK
        return epsilons[-1]

    training = explored("agent", "--stochastic")
    assert training > 0.01
    assert explored("agent") == pytest.approx(0.001)  # `agent.evaluation_epsilon`
    assert explored("stochastic") == training
    assert explored("deterministic") == explored("stochastic", "--deterministic") == 0


def test_pygame_prints_no_error_where_there_is_no_screen(
    run_folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    pygame = pytest.importorskip("pygame")
    for name in ("XDG_RUNTIME_DIR", "SDL_VIDEODRIVER"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr(Pictured, "steps", 1)

    def picture(_: int) -> Any:
        pygame.display.quit()
        pygame.display.init()
        return np.zeros((2, 2, 3), np.uint8)

    monkeypatch.setattr(Pictured, "picture", staticmethod(picture))
    assert _record(run_folder, "--episodes", "1") == ExitCode.OK
    assert capfd.readouterr().err == ""


def test_an_episode_without_an_end_is_cut_short(
    run_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(Pictured, "picture", lambda n: _flat(0))
    monkeypatch.setattr(Pictured, "steps", 10**9)
    assert _record(run_folder, "--episodes", "2", "--max-episode-steps", "4") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 and all("--max-episode-steps" in line for line in lines)
    assert len(_frames(run_folder / "videos" / "episode_001.mp4")) == 5


@pytest.mark.parametrize(
    ("picture", "seen"),
    [
        (_flat([1, 2, 3], 3), (1, 2, 3)),
        (_flat(7), (7, 7, 7)),
        (_flat([1, 2, 3, 255], 4), (1, 2, 3)),
        (_flat([0, 0.5, 1], 3, dtype="f4"), (0, 128, 255)),
        (_flat(1.0, 1, dtype="f8"), (255, 255, 255)),
    ],
)
def test_pictures_are_converted_where_their_meaning_is_clear(picture: Any, seen: Any) -> None:
    """RGBA had its colours shifted, 14 frames for 11; floats were black."""
    found = rgb(picture)
    assert (found.dtype, found.shape, found.flags.c_contiguous) == (np.uint8, (64, 64, 3), True)
    assert tuple(found[3, 4]) == seen


def _raises(number: int) -> Any:
    raise RuntimeError("no\ndisplay")


@pytest.mark.parametrize(
    ("picture", "named"),
    [
        (lambda n: None, "object[]"),
        (lambda n: _flat(255, 3, dtype="i4"), "int32[64, 64, 3]"),
        (lambda n: _flat(0, dtype="bool"), "bool[64, 64]"),
        (lambda n: _flat(255, 3, dtype="f4"), "float32[64, 64, 3]"),
        (lambda n: _flat(np.nan, 3, dtype="f4"), "float32[64, 64, 3]"),
        (lambda n: [[1], [2, 3]], "list"),
        (_raises, "RuntimeError: no display"),
    ],
)
def test_another_picture_is_refused_at_the_first_frame(
    run_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, picture: Any, named: str
) -> None:
    """None was a TypeError's text."""
    monkeypatch.setattr(Pictured, "picture", picture)
    assert _record(run_folder) == ExitCode.USAGE
    out, error = capsys.readouterr()
    assert named in error and error.count("\n") == 1 and out == ""
    assert not [*(run_folder / "videos").iterdir()] and not Pictured.actions


@pytest.mark.parametrize("factory", [lambda: Pictured(), lambda render_mode: Pictured()])
def test_an_environment_that_does_not_render_is_one_line(
    run_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, factory: Any
) -> None:
    monkeypatch.setitem(globals(), "make", factory)
    assert _record(run_folder) == ExitCode.USAGE
    error = capsys.readouterr().err
    assert "expected" in error and "hint: " in error and error.count("\n") == 1


def test_an_observation_that_the_policy_refuses_is_one_line(
    run_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise ValueError("observation: expected 0 to 3, got 4")

    monkeypatch.setattr(Pictured, "picture", lambda n: _flat(0))
    monkeypatch.setattr(type(policy.load()), "__call__", refuse)
    assert _record(run_folder) == ExitCode.FAULTS
    error = capsys.readouterr().err
    assert "expected 0 to 3, got 4" in error and error.count("\n") == 1


def test_only_a_video_that_is_not_written_counts_as_missing(
    run_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(Pictured, "picture", lambda n: _flat(0))
    with monkeypatch.context() as patch:
        patch.setattr(imageio_ffmpeg, "get_ffmpeg_exe", lambda: "false")
        assert _record(run_folder) == ExitCode.FAULTS
    assert "0 of 3 videos" in capsys.readouterr().err

    def lost(*_: Any, file: Any = None, **__: Any) -> None:
        if file is None:
            raise BrokenPipeError

    monkeypatch.setattr(record, "print", lost, raising=False)
    assert _record(run_folder) == 128 + signal.SIGPIPE
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("wrappers", [(), ("envs_server.envs.atari_lives:GameReturn",)])
def test_an_atari_game_is_played_with_the_frames_of_training(wrappers: tuple[str, ...]) -> None:
    pytest.importorskip("ale_py")
    arguments = '{"img_height": 44, "img_width": 44, "life_loss_info": true}'
    config = EnvironmentConfig(id="ALE/Breakout-v5", arguments=arguments, wrappers=wrappers)
    with record._staged(config) as (environment, picture, _):
        assert environment.spec.observation == ArraySpec((44, 44), "uint8")
        assert rgb(picture(environment.reset([0]))).shape == (176, 176, 3)
