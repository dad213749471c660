"""Films of episodes: one file each, with a picture for every observation."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from envs_server.backends import film
from envs_server.building import build_filmed
from envs_server.envs.counting import Counting
from envs_server.errors import BuildError, FilmError
from envs_server.group import EnvGroup
from envs_server.recipe import Recipe
from seedrl.wire.payload import pack_actions

imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg", reason="the extra video is not installed")

# It leaves the pipes of its processes to the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


class Drawn(Counting):
    """A counting environment that draws its step as a shade of grey."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(lengths=[3, 2])
        self.render_mode = render_mode

    def render(self) -> Any:
        return np.full((30, 41, 3), 60 * self._step, np.uint8)


def _shades(path: Path) -> list[int]:
    """The mean brightness of each picture of a film, in steps of 60."""
    frames = imageio_ffmpeg.read_frames(str(path))
    size = next(frames)["size"]
    assert size == (42, 30)  # even
    return [round(np.frombuffer(frame, np.uint8).mean() / 60) for frame in frames]


def test_an_episode_is_a_film_with_a_picture_for_each_observation(tmp_path: Path) -> None:
    environment = build_filmed(Recipe("drawn", {}, factory=Drawn), "auto", tmp_path / "films")
    environment.reset([7])
    for _ in range(
        7
    ):  # 3 steps, the reset, 2 steps, and the reset of an episode that is not played
        environment.step(np.zeros(1, np.int64))
    environment.close()
    films = sorted((tmp_path / "films").iterdir())
    assert [path.name for path in films] == ["episode_000.mp4", "episode_001.mp4"]
    assert [_shades(path) for path in films] == [[0, 1, 2, 3], [0, 1, 2]]


def test_an_episode_that_is_broken_off_leaves_no_film(tmp_path: Path) -> None:
    environment = build_filmed(Recipe("drawn", {}, factory=Drawn), "auto", tmp_path)
    environment.reset([7])
    for _ in range(2):
        environment.step(np.zeros(1, np.int64))
    environment.close()
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo no space left >&2; exit 3", "ended with 3: no space left"),
        ("kill -9 $$", "was killed by SIGKILL"),
        ("cat > /dev/null; exit 1", "ended with 1"),
    ],
)
def test_a_film_that_ffmpeg_does_not_write_is_no_fault_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, reason: str
) -> None:
    ffmpeg = tmp_path / "ffmpeg"
    ffmpeg.write_text(f"#!/bin/sh\n{script}\n")
    ffmpeg.chmod(0o700)
    monkeypatch.setattr(imageio_ffmpeg, "get_ffmpeg_exe", lambda: str(ffmpeg))
    films = tmp_path / "films"
    environment = build_filmed(Recipe("drawn", {}, factory=Drawn), "auto", films)
    group = EnvGroup(0, environment, [7])
    group.first()
    with pytest.raises(FilmError) as failure:
        for sequence in range(4):
            group.step(memoryview(pack_actions(0, sequence, np.zeros(1, np.int32))))
    assert str(failure.value) == f"cannot write episode_000.mp4: ffmpeg {reason}"
    group.close()
    assert not [*films.iterdir()]


def test_what_an_agent_sees_can_be_filmed_instead(tmp_path: Path) -> None:
    recipe = Recipe("image", {"lengths": [1], "image": True}, factory=Counting)
    plain = film.sync.build(recipe, 1)
    environment = film.build_from_observations(recipe, plain, tmp_path)
    environment.reset([7])
    environment.step(np.zeros(1, np.int64))
    frames = imageio_ffmpeg.read_frames(str(tmp_path / "episode_000.mp4"))
    assert next(frames)["size"] == (4 * 84, 4 * 84)
    assert len(list(frames)) == 2
    with pytest.raises(BuildError, match="cannot film image: .* it is seen as Box"):
        recipe = Recipe("image", {}, factory=Counting)
        film.build_from_observations(recipe, film.sync.build(recipe, 1), tmp_path)


class Undrawn(Counting):
    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__()


@pytest.mark.parametrize(
    ("factory", "reason"),
    [(Undrawn, "it has render_mode None"), (Counting, "it takes no argument render_mode")],
)
def test_what_does_not_draw_itself_is_refused_in_one_line(
    tmp_path: Path, factory: type[gymnasium.Env[Any, Any]], reason: str
) -> None:
    with pytest.raises(BuildError, match=f"cannot film some:env: expected .* {reason}"):
        build_filmed(Recipe("some:env", {}, factory=factory), "auto", tmp_path)
