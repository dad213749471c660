"""Environments that are a vector already: a user's `make_vec`, gymnasium's own, and ALE's games."""

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, VectorEnv

from envs_server.failures import BuildError, EnvironmentFailedError, Failures, Progress, returned
from envs_server.groups import VectorStep
from envs_server.spaces import env_spec
from seedrl.specs import ACTION_MASK
from seedrl.types import StepType, TimeStep, Tree
from seedrl.wire.payload import StepLayout, ValueFaultError, check_rewards

_MID = np.uint8(StepType.MID)
# Those of R2D2 (Kapturowski et al. 2019, appendix), pinned because ale-py's may change: one 84x84
# uint8 frame per step, of 4 frames of which the last two are max-pooled, up to 30 no-op starts, no
# sticky actions (gymnasium's ALE/Pong-v5 has 0.25), rewards as the game gives them. Frames are
# stacked by the learner. An environment's arguments override any of them by ALE's own names.
_ALE_DEFAULTS: dict[str, Any] = {
    "img_height": 84,
    "img_width": 84,
    "grayscale": True,
    "frameskip": 4,
    "maxpool": True,
    "noop_max": 30,
    "repeat_action_probability": 0.0,
    "full_action_space": False,
    "continuous": False,
    "episodic_life": False,
    "life_loss_info": False,
    "use_fire_reset": False,
    "reward_clipping": False,
    "max_num_frames_per_episode": 108_000,
}
# The wire carries single frames in lock step; ALE would otherwise return some environments early.
_ALE_FIXED: dict[str, Any] = {"stack_num": 1, "batch_size": 0, "autoreset_mode": "NextStep"}


def build_vector(
    back_end: str,
    id: str,
    arguments: Mapping[str, Any],
    wrappers: Sequence[Callable[[Any], Any]],
    factory: Callable[..., Any] | None,
    vector_factory: Callable[..., Any] | None,
    *,
    max_abs_reward: float,
    positions: Sequence[int],
    failures: Failures,
) -> "Native":
    """Environments of a recipe that one implementation steps: `native`, or `atari` for ALE's games.

    One for each of `positions`. Raises BuildError if none honours the whole recipe.
    """
    num_envs = len(positions)
    is_atari = factory is None and id.startswith("ALE/")
    has_vector = is_atari if back_end == "atari" else vector_factory or factory is None
    # Most wrappers take one environment.
    takes_vectors = all(getattr(each, "takes_vectors", False) for each in wrappers)
    if not has_vector or not takes_vectors:
        whole = f"{id} with {len(wrappers)} wrappers"
        raise BuildError(
            f"vectorization {back_end} cannot build {whole}; use environment.vectorization sync"
        )
    env: VectorEnv[Any, Any, Any]
    if is_atari:  # not gymnasium's: that has other frames, and sticky actions
        env = _atari_vector(id, arguments, num_envs)
    elif vector_factory is None:
        env = gymnasium.make_vec(id, num_envs, vectorization_mode="vector_entry_point", **arguments)
    else:
        env = vector_factory(num_envs=num_envs, **arguments)
    env = functools.reduce(lambda inner, wrapper: wrapper(inner), wrappers, env)
    # Any other mode swallows the last observation of an episode, or moves it to where it is copied
    # once more.
    mode = env.metadata.get("autoreset_mode")
    if mode != AutoresetMode.NEXT_STEP:
        env.close()
        raise BuildError(
            f"expected a vector environment with autoreset mode NEXT_STEP, {type(env).__name__} "
            f"has {getattr(mode, 'name', mode)}; use environment.vectorization sync"
        )
    return Native(env, is_atari, max_abs_reward, positions, failures)


class Native:
    """Owns environments that are a vector; a `VectorEnvironment`. Used by one thread.

    Anything that it raises counts in `failures`: at the environment that gave a wrong number, else
    against all of them.

    Raises BuildError if the spaces are not supported.
    """

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        is_atari: bool,
        max_abs_reward: float,
        positions: Sequence[int],
        failures: Failures,
    ) -> None:
        """`env` is ALE's vector if `is_atari`."""
        self._env, self._is_atari, self._max_abs_reward = env, is_atari, max_abs_reward
        self._positions, self._failures = positions, failures
        self.action_space = env.single_action_space
        try:
            self.spec = env_spec(env.single_observation_space, self.action_space)
        except BuildError:
            with contextlib.suppress(BaseException):  # why it is refused is what is reported
                env.close()
            raise
        self._check_observation = StepLayout(self.spec, len(positions)).check_observation
        self.close = env.close

    def reset(self, seeds: Sequence[int]) -> Tree:
        """Starts new episodes; of those of gymnasium the first seed is for all of them."""
        # A vector of gymnasium's draws all its environments' numbers from one generator.
        seed: Any = np.asarray(seeds, np.int64) if self._is_atari else seeds[0]
        try:
            observation, info = returned("reset", self._env.reset(seed=seed))
            if ACTION_MASK in info and not self.spec.has_mask:
                raise BuildError(
                    f"expected the action masks of a vector implementation as {ACTION_MASK!r} of a "
                    f"Dict observation, got info[{ACTION_MASK!r}]; "
                    "use environment.vectorization sync"
                )
            # The environments whose episode has ended: their next row is FIRST.
            self._is_last = np.zeros(len(seeds), np.bool_)
            observation = self._checked(observation)
            self._failures.progress = max(self._failures.progress, Progress.RESET)
            return observation
        except BuildError:
            raise
        except BaseException as error:  # sys.exit would look like the end of training
            raise self._failure("reset", error) from error

    def step(self, actions: np.ndarray) -> VectorStep:
        """Steps all, but resets those whose episode is over."""
        try:
            observation, reward, terminated, truncated, info = returned(
                "step", self._env.step(actions)
            )
            shapes = [*map(np.shape, (reward, terminated, truncated))]
            if shapes != [self._is_last.shape] * 3:
                raise TypeError(
                    f"expected reward, terminated and truncated of shape {self._is_last.shape}, "
                    f"got {shapes}"
                )
            check_rewards(np.asarray(reward), self._max_abs_reward)
            is_first, self._is_last = self._is_last, np.logical_or(terminated, truncated)
            step_type = self._is_last.view(np.uint8) + _MID  # LAST is the number after MID
            reward = np.array(reward, np.float32)  # a copy: FIRST rows are changed below
            if 1 in is_first.tobytes():  # hardly ever, and a fraction of the time of `any`
                if (is_first & self._is_last).any():
                    row = int(np.argmax(is_first & self._is_last))
                    text = "expected a new episode after the end of one, got an end again"
                    raise ValueFaultError(text, row)
                step_type[is_first] = StepType.FIRST
                reward[is_first] = 0  # of an ignored action
            # Of a truncated episode it stays 1: its last observation has a value, which bootstraps.
            discount = np.logical_not(terminated).astype(np.float32)
            timestep = TimeStep(step_type, reward, discount, self._checked(observation, discount))
        except BaseException as error:  # as in `reset`
            raise self._failure("step", error) from error
        self._failures.stepped(step_type)
        return VectorStep(timestep, functools.partial(info_of, info))

    def _checked(self, observation: Tree, discount: np.ndarray | None = None) -> Tree:
        if self._is_atari:  # without the axis of one frame: a view, no copy
            observation = observation[:, 0]
        if self.spec.has_mask:
            observation = {**observation, ACTION_MASK: _mask(observation[ACTION_MASK])}
        self._check_observation(observation, discount)
        return observation

    def _failure(self, what: str, error: BaseException) -> EnvironmentFailedError:
        if isinstance(error, ValueFaultError):
            position = self._positions[error.row]
            return EnvironmentFailedError(self._failures.failed(position, what, error))
        where = f"{what} of environments {self._positions[0]} to {self._positions[-1]}"
        return EnvironmentFailedError(self._failures.failed(None, where, error))


def _mask(mask: np.ndarray) -> np.ndarray:
    # `[E, A]` of integers as bools.
    is_other = (mask != 0) & (mask != 1)
    if is_other.any():
        row = int(np.argmax(is_other.any(axis=-1)))
        text = f"expected 0 or 1 in observation.{ACTION_MASK}, got {mask[is_other].flat[0]}"
        raise ValueFaultError(text, row)
    return mask.astype(bool)


def info_of(info: Mapping[str, Any], row: int) -> dict[str, Any]:
    """The `info` of one environment, of a merged one, without what its masks rule out."""
    own: dict[str, Any] = {}
    for key, value in info.items():
        if isinstance(value, Mapping):
            own[key] = info_of(value, row)
        elif isinstance(key, str) and not key.startswith("_"):
            # Gymnasium masks the rows that have the key. Another key may have no rows, or no mask.
            with contextlib.suppress(TypeError, IndexError):
                if f"_{key}" not in info or info[f"_{key}"][row]:
                    own[key] = value[row]
    return own


def register_ale() -> None:
    """Makes gymnasium know the ALE ids. Raises BuildError if ale-py is not installed."""
    try:
        import ale_py
    except ImportError as error:
        raise BuildError("expected ale-py for Atari games; pip install 'seedrl[atari]'") from error
    gymnasium.register_envs(ale_py)  # since gymnasium 1.0 no package registers itself


def _atari_vector(id: str, arguments: Mapping[str, Any], num_envs: int) -> VectorEnv[Any, Any, Any]:
    """ALE's own vector of a game: spaces of one frame, arrays with an axis of one frame, `[E, 1]`.

    A frame is `[84, 84] uint8`, in colour `[84, 84, 3]`. Raises BuildError for `arguments` that
    cannot be changed.
    """
    if fixed := _ALE_FIXED.keys() & arguments.keys():  # not overridden in silence
        raise BuildError(f"environment.arguments must not contain {', '.join(sorted(fixed))}")
    from ale_py.vector_env import AtariVectorEnv

    settings = {**_ALE_DEFAULTS, **arguments, **_ALE_FIXED}
    env = AtariVectorEnv(gymnasium.spec(id).kwargs["game"], num_envs, **settings)
    stack = env.single_observation_space
    assert isinstance(stack, Box)
    # Of one frame: the learner stacks them, so that each crosses the wire once.
    env.single_observation_space = Box(0, 255, stack.shape[1:], np.uint8)
    return env
