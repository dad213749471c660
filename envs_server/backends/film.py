"""Films of what an environment plays: one file for each episode, written by ffmpeg."""

import contextlib
import signal
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from envs_server.backends import sync
from envs_server.errors import BuildError, FilmError
from envs_server.recipe import Recipe
from envs_server.vector import VectorEnvironment, VectorStep
from seedrl.types import Tree

_OBSERVATION_FPS = 15.0  # Atari's 60 frames per second, of which an agent sees every fourth
_OBSERVATION_SCALE = 4  # what an agent sees is small
# The codec wants even sizes; a film that is not complete has no name that says its format.
_ENCODING = "-an -pix_fmt yuv420p -crf 10 -vf scale=ceil(iw/2)*2:ceil(ih/2)*2 -f mp4"
_LONGEST_SAID = 500  # of what ffmpeg says


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

    A step raises FilmError if its picture cannot be added, or its episode's film not be finished.
    An episode that is broken off leaves no film.
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
        films.discard()
        environment.close()

    return environment._replace(reset=reset, step=step, close=close)


class _Films:
    """Owns the film that is being written, and numbers those of a folder."""

    def __init__(self, folder: Path, fps: float):
        try:
            import imageio_ffmpeg
        except ImportError as error:
            raise BuildError("expected imageio-ffmpeg for films; install seedrl[video]") from error
        folder.mkdir(parents=True, exist_ok=True)
        self._ffmpeg: str = imageio_ffmpeg.get_ffmpeg_exe()
        self._folder, self._fps, self._number = folder, fps, 0
        self._first: np.ndarray | None = None
        self._film: _Film | None = None

    def add(self, picture: np.ndarray) -> None:
        """Adds a picture to the film; to a new one, if there is none."""
        picture = np.ascontiguousarray(picture, np.uint8)
        if self._film is None and self._first is None:
            # After the last episode that is played another one begins, and has no second picture.
            self._first = picture.copy()
            return
        if self._film is None:
            path = self._folder / f"episode_{self._number:03}.mp4"
            self._film = _Film(self._ffmpeg, path, picture.shape, self._fps)
            assert self._first is not None
            self._film.add(self._first)
            self._number += 1
        self._film.add(picture)

    def end(self) -> None:
        """Finishes the film, if there is one, and waits until it is written."""
        film, self._film, self._first = self._film, None, None
        if film is not None:
            film.end()

    def discard(self) -> None:
        """Leaves nothing of the film that is being written, if there is one."""
        film, self._film, self._first = self._film, None, None
        if film is not None:
            film.discard()


class _Film:
    """Owns the ffmpeg process that writes one film, which gets its name when it is complete.

    Not `imageio_ffmpeg.write_frames`, which says neither how ffmpeg ended nor what it said.
    """

    def __init__(self, ffmpeg: str, path: Path, shape: tuple[int, ...], fps: float):
        """`shape` is that of every picture, `[H, W, 3]`. Raises FilmError."""
        self._path, self._partial = path, path.with_name(f"{path.name}.partial")
        height, width = shape[:2]
        source = f"-f rawvideo -pix_fmt rgb24 -s {width}x{height} -r {fps:g} -i -"
        self._said = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            self._process = subprocess.Popen(
                [ffmpeg, "-y", "-v", "error", *f"{source} {_ENCODING}".split(), self._partial],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=self._said,
                # So that Ctrl-C reaches only this process, which decides what to do.
                process_group=0,
            )
        except OSError as error:
            self._said.close()
            raise FilmError(f"cannot write {path.name}: cannot start ffmpeg: {error}") from error

    def add(self, picture: np.ndarray) -> None:
        """Adds a picture. Raises FilmError if ffmpeg has ended."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(picture.data)
        except OSError as error:
            raise self._failure() from error

    def end(self) -> None:
        """Waits until the film is complete. Raises FilmError if it cannot be."""
        if self._close():
            raise self._failure()
        try:
            self._partial.replace(self._path)
        except OSError as error:
            raise FilmError(f"cannot write {self._path.name}: {error}") from error
        finally:
            self._said.close()

    def discard(self) -> None:
        """Leaves nothing of the film."""
        self._process.kill()  # nothing, if it has ended
        self._close()
        self._said.close()
        self._partial.unlink(missing_ok=True)

    def _close(self) -> int:
        assert self._process.stdin is not None
        # What ffmpeg has not read is its failure, which its exit code says.
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        return self._process.wait()

    def _failure(self) -> FilmError:
        code = self._close()
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        self._said.seek(0)
        text = " ".join(self._said.read().decode(errors="replace").split())[-_LONGEST_SAID:]
        self._said.close()
        self._partial.unlink(missing_ok=True)
        return FilmError(
            f"cannot write {self._path.name}: ffmpeg {how}{': ' if text else ''}{text}"
        )


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
