"""Films of what an environment plays: one file for each episode, written by ffmpeg."""

import contextlib
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from envs_server.backends import sync
from envs_server.errors import BuildError
from envs_server.recipe import Recipe
from envs_server.vector import VectorEnvironment, VectorStep
from seedrl.types import Tree

_OBSERVATION_FPS = 15.0  # Atari's 60 frames per second, of which an agent sees every fourth
_OBSERVATION_SCALE = 4  # what an agent sees is small


def build(recipe: Recipe, folder: Path) -> VectorEnvironment:
    """One environment of `recipe` on the sync back end, filmed as it draws itself.

    Raises BuildError if it does not, by render mode rgb_array, or ffmpeg is not installed.
    """
    built: list[gymnasium.Env[Any, Any]] = []

    def look(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
        built.append(env)
        return env

    drawing = recipe._replace(
        arguments={**recipe.arguments, "render_mode": "rgb_array"},
        wrappers=(*recipe.wrappers, look),
    )
    try:
        environment = sync.build(drawing, 1)
    except TypeError as error:
        if "render_mode" not in str(error):
            raise
        raise BuildError(_cannot_draw(recipe, "takes no argument render_mode")) from error
    (env,) = built
    if env.render_mode != "rgb_array":
        raise BuildError(_cannot_draw(recipe, f"has render_mode {env.render_mode!r}"))
    fps = float(env.metadata.get("render_fps") or 30)

    def picture(observation: Tree) -> np.ndarray:
        return np.asarray(env.render())

    return filmed(environment, folder, picture, fps=fps)


def build_from_observations(
    recipe: Recipe, environment: VectorEnvironment, folder: Path
) -> VectorEnvironment:
    """`environment`, which is one of `recipe`, filmed as the agent sees it.

    Raises BuildError if observations are not images, or ffmpeg is not installed.
    """
    space = environment.observation_space
    if not isinstance(space, Box) or space.dtype != np.uint8 or len(space.shape) not in (2, 3):
        environment.close()
        raise BuildError(_cannot_draw(recipe, f"is seen as {space}"))
    return filmed(environment, folder, _of_observation, fps=_OBSERVATION_FPS)


def filmed(
    environment: VectorEnvironment,
    folder: Path,
    picture: Callable[[Tree], np.ndarray],
    *,
    fps: float,
) -> VectorEnvironment:
    """`environment`, which is one, filmed into `folder/episode_000.mp4` and so on.

    Args:
      environment: resets itself on the step after an episode's last.
      folder: is made; films of that name are written over.
      picture: what to show of an observation, `[1, ...]`: `[H, W, 3] uint8`, all of one size.
      fps: pictures in a second.
    """
    films = _Films(folder, fps)

    def reset(seeds: Any) -> Tree:
        observation = environment.reset(seeds)
        films.add(picture(observation))
        return observation

    def step(actions: np.ndarray) -> VectorStep:
        result = environment.step(actions)
        films.add(picture(result.observation))
        # Now and not with the next episode, which there may not be.
        if result.terminated[0] or result.truncated[0]:
            films.end()
        return result

    def close() -> None:
        films.end()
        environment.close()

    return environment._replace(reset=reset, step=step, close=close)


class _Films:
    """Owns the ffmpeg process of the film that is being written."""

    def __init__(self, folder: Path, fps: float):
        try:
            import imageio_ffmpeg
        except ImportError as error:
            raise BuildError("expected imageio-ffmpeg for films; install seedrl[video]") from error
        folder.mkdir(parents=True, exist_ok=True)
        self._write = imageio_ffmpeg.write_frames
        self._folder, self._fps, self._number = folder, fps, 0
        self._first: np.ndarray | None = None
        self._film: Generator[None, Any, None] | None = None

    def add(self, picture: np.ndarray) -> None:
        """Adds a picture to the film; to a new one, if there is none."""
        picture = np.ascontiguousarray(picture, np.uint8)
        if self._film is None and self._first is None:
            # After the last episode that is played another one begins, and has no second picture.
            self._first = picture.copy()
            return
        if self._film is None:
            path = self._folder / f"episode_{self._number:03}.mp4"
            height, width = picture.shape[:2]
            # The codec wants even sizes, and no more than that.
            self._film = self._write(
                str(path), (width, height), fps=self._fps, macro_block_size=2, quality=8
            )
            self._film.send(None)
            self._film.send(self._first)
            self._number += 1
        self._film.send(picture)

    def end(self) -> None:
        """Finishes the film, if there is one, and waits until it is written."""
        film, self._film, self._first = self._film, None, None
        if film is not None:
            with contextlib.closing(film):
                pass


def _of_observation(observation: Tree) -> np.ndarray:
    image = np.asarray(observation)[0]
    colour = image if image.ndim == 3 and image.shape[-1] == 3 else np.stack([image] * 3, axis=-1)
    return (
        colour.reshape(*image.shape[:2], 3)
        .repeat(_OBSERVATION_SCALE, 0)
        .repeat(_OBSERVATION_SCALE, 1)
    )


def _cannot_draw(recipe: Recipe, found: str) -> str:
    return (
        f"cannot film {recipe.id}: expected an environment that draws itself with render_mode "
        f"'rgb_array', it {found}"
    )
