"""`seedrl record RUN`: videos of episodes that a run's policy plays.

The environment is stepped in this process, by the env server's own code, as in `seedrl pretrain`
only (see the import contracts in pyproject.toml).
"""

import contextlib
import functools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from learner.cli.evaluate import PlayOptions, config_of
from learner.processes.tuning import require_jax
from seedrl import config_io
from seedrl.config import EnvironmentConfig, acts_on_tokens
from seedrl.errors import ConfigError
from seedrl.exit_codes import ExitCode
from seedrl.hints import require_extra
from seedrl.programs.command_line import read
from seedrl.run_files import VIDEOS, make_folder
from seedrl.types import StepType, Tree

if TYPE_CHECKING:
    from envs_server.groups import VectorEnvironment
    from seedrl.policy import Policy

    # An environment, its picture for an observation `[1, ...]`, and pictures in a second.
    Stage = tuple[VectorEnvironment, Callable[[Tree], Any], float]

PROG = "seedrl record"

_OBSERVATION_FPS = 15.0  # Atari's 60 frames per second, of which an agent sees every fourth
_OBSERVATION_SCALE = 4  # an agent's pictures are small
_RENDERED_FPS = 30.0  # of an environment whose metadata have no render_fps
# The codec wants even sizes; the format is named because an incomplete video has another suffix.
_ENCODING = "-an -pix_fmt yuv420p -crf 10 -vf scale=ceil(iw/2)*2:ceil(ih/2)*2 -f mp4"


@dataclass(frozen=True, kw_only=True)
class RecordOptions(PlayOptions):
    """Record videos of a run's policy, one for each episode.

    The environment renders itself (render_mode rgb_array); for ALE games the videos show the frames
    that the agent sees.

    Example: seedrl record runs/pong --best --episodes 1

    Attributes:
      output: directory of the videos; by default videos/ in the run's directory. Existing videos
        of the same name are replaced.
    """

    episodes: int = 3
    output: Path | None = None


def run(argv: Sequence[str]) -> int:
    options = read(RecordOptions, argv, prog=PROG)
    require_extra("learner")
    require_extra("video")
    config = config_of(options)
    if acts_on_tokens(config):
        raise ConfigError(
            "expected a run whose environment renders, got a token policy; `seedrl watch "
            f"{options.workdir}` shows its newest answers"
        )
    require_jax()
    # Pictures need no screen; without one pygame would print an error.
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    videos = (options.output or options.workdir / VIDEOS).absolute()
    try:
        make_folder(videos)
    except OSError as error:
        raise ConfigError(f"--output: cannot make {videos}: {error.strerror}") from error
    seed = config.seed if options.seed is None else options.seed

    from learner.acting.evaluator import evaluation_exploration
    from seedrl.agents.check import build_agent
    from seedrl.policy import load

    loaded = functools.partial(
        load,
        options.workdir,
        seed=seed,
        step=options.update,
        best=options.best,
        allow=options.allow,
    )
    policy = loaded()
    exploration = evaluation_exploration(
        build_agent(config.agent, policy.spec),
        options.actions or config.evaluation.actions,
        config.serving.training_slots,
    )
    if exploration:
        policy = loaded(epsilon=exploration)
    from envs_server.failures import EnvironmentFailedError

    number = 0
    try:
        with _staged(config.environment) as stage:
            for path, score, how in _episodes(stage, policy, options, videos, seed):
                number += 1
                print(f"{path}: return {score:g}{how}", flush=True)
    except (subprocess.CalledProcessError, EnvironmentFailedError) as error:
        print(f"{PROG}: {number} of {options.episodes} videos: {error}", file=sys.stderr)
        return ExitCode.FAULTS
    return ExitCode.OK


@contextlib.contextmanager
def _staged(config: EnvironmentConfig) -> "Iterator[Stage]":
    """Builds the environment of a run. Raises BuildError if it cannot be built or rendered."""
    from envs_server.build import build, choose, read_recipe
    from envs_server.failures import BuildError, one_line
    from seedrl.wire.seedrl_pb2 import Environment

    # Modules of the run's own; `config_of` has refused those that are not allowed.
    sys.path.extend(config_io.folders_for_children())
    asked = Environment(id=config.id, arguments=config.arguments, wrappers=config.wrappers)
    recipe = read_recipe(asked, (config.id, *config.wrappers))
    if choose(recipe, config.vectorization) == "atari":  # with the frames of training
        environment = build(recipe, "atari", 1, max_abs_reward=config.max_abs_reward)
        stage: Stage = (environment, _enlarged, _OBSERVATION_FPS)
    else:
        built: list[Any] = []

        def keep(env: Any) -> Any:
            built.append(env)
            return env

        arguments = {**recipe.arguments, "render_mode": "rgb_array"}
        recipe = recipe._replace(arguments=arguments, wrappers=(*recipe.wrappers, keep))
        expected = (
            f"cannot record {config.id}: expected an environment that takes the argument "
            "render_mode='rgb_array' and has it as an attribute, got "
        )
        hint = "hint: let its factory pass render_mode on to the environment"
        try:
            environment = build(recipe, "sync", 1, max_abs_reward=config.max_abs_reward)
        except BuildError as error:
            if "render_mode" not in str(error):
                raise
            raise ConfigError(f"{expected}'{error}'. {hint}") from error
        # Some take the argument and ignore it.
        if (mode := getattr(built[0], "render_mode", None)) != "rgb_array":
            raise ConfigError(f"{expected}render_mode={mode!r}. {hint}")
        fps = float(built[0].metadata.get("render_fps") or _RENDERED_FPS)

        def rendered(observation: Tree) -> Any:
            try:
                return built[0].render()
            except Exception as error:
                raise BuildError(f"cannot record {config.id}: {one_line(error)}") from error

        stage = (environment, rendered, fps)
    try:
        yield stage
    finally:
        with contextlib.suppress(BaseException):  # the videos are complete
            environment.close()


def _enlarged(observation: Tree) -> np.ndarray:
    frame = np.asarray(observation)[0]
    return frame.repeat(_OBSERVATION_SCALE, 0).repeat(_OBSERVATION_SCALE, 1)


def _episodes(
    stage: "Stage", policy: "Policy", options: RecordOptions, videos: Path, seed: int
) -> Iterator[tuple[Path, float, str]]:
    """Plays; the file, the return and, if it was cut short, a remark on each episode."""
    from envs_server.failures import EnvironmentFailedError

    (environment, picture, fps), spec = stage, policy.spec
    start: Any = getattr(environment.action_space, "start", 0)  # of discrete actions
    dtype = environment.action_space.dtype
    for number in range(options.episodes):
        observation = environment.reset([seed + number])
        carry, reward, score, is_over = policy.initial_carry(), 0.0, 0.0, False
        path = videos / f"episode_{number:03}.mp4"
        frame = rgb(picture(observation))  # refused before there is a file
        with _video(path, frame.shape, fps) as add:
            add(frame)
            for _ in range(options.max_episode_steps):
                row = spec.unflatten([leaf[0] for leaf in spec.flatten(observation)])
                try:
                    action, carry = policy(row, carry, reward=reward)
                except ValueError as error:  # an observation outside the environment's space
                    raise EnvironmentFailedError(str(error)) from error
                timestep, _ = environment.step(np.asarray([action], dtype) + start)
                observation, reward = timestep.observation, float(timestep.reward[0])
                score += reward
                add(rgb(picture(observation)))
                is_over = timestep.step_type[0] == StepType.LAST
                if is_over:
                    break
        cut = f", cut short after {options.max_episode_steps:,} steps (--max-episode-steps)"
        yield path, score, "" if is_over else cut


def rgb(picture: Any) -> np.ndarray:
    """A picture as `[H, W, 3] uint8`. Raises ConfigError if its meaning is not clear.

    Clear are `[H, W]` with 1 (gray), 3 or 4 channels (alpha is dropped), of uint8, or of floats
    from 0 to 1.
    """
    try:
        array = np.asarray(picture)
    except ValueError:  # ragged
        array = np.array(None)
    got = f"{type(picture).__name__}, {array.dtype}{list(array.shape)}"
    if array.ndim == 2:
        array = array[..., None]
    is_picture = array.ndim == 3 and array.shape[-1] in (1, 3, 4) and array.size
    if is_picture and array.dtype.kind == "f":
        low, high = array.min(), array.max()
        got = f"{got} of {low:g} to {high:g}"
        if low >= 0 and high <= 1:  # neither is true of NaN
            array = np.rint(255 * array.astype(np.float32)).astype(np.uint8)
    if not is_picture or array.dtype != np.uint8:
        raise ConfigError(
            "expected a picture from render, [H, W] or [H, W, 1, 3 or 4], uint8 or floats from 0 "
            f"to 1; got {got}"
        )
    return np.ascontiguousarray(np.broadcast_to(array[..., :3], (*array.shape[:2], 3)))


@contextlib.contextmanager
def _video(
    path: Path, shape: tuple[int, ...], fps: float
) -> Iterator[Callable[[np.ndarray], None]]:
    """Takes pictures `[H, W, 3] uint8` of one shape; the file gets its name when it is complete."""
    # Not `imageio_ffmpeg.write_frames`: it hides ffmpeg's exit code, and forks a process of
    # threads.
    import imageio_ffmpeg

    from envs_server.failures import EnvironmentFailedError

    partial = path.with_name(f"{path.name}.partial")
    source = f"-f rawvideo -pix_fmt rgb24 -s {shape[1]}x{shape[0]} -r {fps:g} -i -"
    words = [imageio_ffmpeg.get_ffmpeg_exe(), "-y", "-v", "error"]
    words += [*f"{source} {_ENCODING}".split(), str(partial)]
    # In a group of its own, because Ctrl-C is for this process, which decides what to do. ffmpeg's
    # errors go to our stderr.
    process = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, process_group=0
    )
    stdin: Any = process.stdin

    def failure() -> subprocess.CalledProcessError:
        return subprocess.CalledProcessError(process.wait(), f"ffmpeg ... {path.name}")

    def add(frame: np.ndarray) -> None:
        if frame.shape != shape:
            size = f"expected pictures of one size, got {list(frame.shape[:2])}"
            raise EnvironmentFailedError(f"{size} after {list(shape[:2])}")
        try:
            stdin.write(frame.data)
        except OSError as error:
            raise failure() from error

    try:
        yield add
        # What ffmpeg has not read is its failure, which its exit code shows.
        with contextlib.suppress(OSError):
            stdin.close()
        if process.wait():
            raise failure()
        partial.replace(path)
    finally:
        process.kill()  # nothing, if it has ended
        with contextlib.suppress(OSError):
            stdin.close()
        process.wait()
        partial.unlink(missing_ok=True)
