"""Environments that are a vector already: a user's `make_vec`, gymnasium's own, and ALE's games."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, VectorEnv

from envs_server.errors import BuildError
from envs_server.spaces import env_spec
from envs_server.vector import VectorEnvironment, VectorStep
from seedrl.types import Tree
from seedrl.wire.payload import StepLayout
from seedrl.wire.values import check_rewards


def from_gymnasium(
    env: VectorEnv[Any, Any, Any],
    reset: Callable[[Sequence[int]], Tree],
    *,
    num_envs: int,
    max_abs_reward: float = 0.0,
    unstacked: bool = False,
) -> VectorEnvironment:
    """Wraps `env`; `reset` because gymnasium's vector environments differ in how they take seeds.

    `unstacked` drops an axis of one frame behind the first axis of observations. Raises BuildError
    if `env` does not reset itself on the next step: any other mode swallows the last observation
    of an episode or moves it to where it is copied once more.
    """
    mode = env.metadata.get("autoreset_mode")
    if mode != AutoresetMode.NEXT_STEP:
        env.close()
        raise BuildError(
            f"expected a vector environment with autoreset mode NEXT_STEP, {type(env).__name__} "
            f"has {getattr(mode, 'name', mode)}; use vectorization sync"
        )
    spec = env_spec(env.single_observation_space, env.single_action_space)
    check_observation = StepLayout(spec, num_envs).check_observation

    def checked_reset(seeds: Sequence[int]) -> Tree:
        observation = reset(seeds)
        check_observation(observation)
        return observation

    def step(actions: np.ndarray) -> VectorStep:
        result = VectorStep(*env.step(actions))
        check_rewards(np.asarray(result.reward), max_abs_reward)
        if unstacked:  # a view, no copy
            result = result._replace(observation=result.observation[:, 0])
        check_observation(result.observation)
        return result

    spaces = (env.single_observation_space, env.single_action_space)
    return VectorEnvironment(*spaces, checked_reset, step, env.close)


def from_factory(
    factory: Callable[..., Any] | None,
    id: str,
    arguments: Mapping[str, Any],
    num_envs: int,
    max_abs_reward: float,
) -> VectorEnvironment:
    """Environments that an implementation of their own steps: `factory`, or that of a gymnasium id.

    A vector environment takes one seed for all its environments: the first of those it is given.
    """
    if factory is None:
        env = gymnasium.make_vec(id, num_envs, vectorization_mode="vector_entry_point", **arguments)
    else:
        env = factory(num_envs=num_envs, **arguments)
    return from_gymnasium(
        env,
        lambda seeds: env.reset(seed=seeds[0])[0],
        num_envs=num_envs,
        max_abs_reward=max_abs_reward,
    )


# ALE: C++ threads, one 84x84 uint8 frame per step. The defaults are those of R2D2 (Kapturowski et
# al. 2019, appendix): 4 frames per step, of which the last two are max-pooled, up to 30 no-op
# starts, no sticky actions, episodes of at most 108,000 frames, and rewards as the game gives them.
# Frames are stacked by the learner. An environment's arguments override any of them by ALE's own
# names. An id such as ALE/Pong-v5 has sticky actions of 0.25 in gymnasium's registry: here they are
# off unless `repeat_action_probability` asks for them.
_ALE_DEFAULTS: dict[str, Any] = {
    "frameskip": 4,
    "noop_max": 30,
    "repeat_action_probability": 0.0,
    "full_action_space": False,
    "episodic_life": False,
    "use_fire_reset": False,
    "reward_clipping": False,
    "max_num_frames_per_episode": 108_000,
}
# The wire carries single frames in lock step; ALE would otherwise return some environments early.
_ALE_FIXED: dict[str, Any] = {"stack_num": 1, "batch_size": 0, "autoreset_mode": "NextStep"}


def register_ale() -> None:
    """Makes gymnasium know the ALE ids. Raises BuildError if ale-py is not installed."""
    try:
        import ale_py
    except ImportError as error:
        raise BuildError("expected ale-py for Atari games; pip install 'seedrl[atari]'") from error
    gymnasium.register_envs(ale_py)


def atari(
    id: str, arguments: Mapping[str, Any], num_envs: int, max_abs_reward: float
) -> VectorEnvironment:
    """`num_envs` games, observations `[84, 84] uint8` (`[84, 84, 3]` in colour)."""
    if fixed := _ALE_FIXED.keys() & arguments.keys():
        raise BuildError(f"environment.arguments must not contain {', '.join(sorted(fixed))}")
    arguments = {**_ALE_DEFAULTS, **arguments, **_ALE_FIXED}
    register_ale()
    from ale_py.vector_env import AtariVectorEnv

    env = AtariVectorEnv(gymnasium.spec(id).kwargs["game"], num_envs, **arguments)
    stack = env.single_observation_space
    assert isinstance(stack, Box)
    env.single_observation_space = Box(0, 255, stack.shape[1:], np.uint8)
    return from_gymnasium(
        env,
        lambda seeds: env.reset(seed=np.asarray(seeds, np.int64))[0][:, 0],
        num_envs=num_envs,
        max_abs_reward=max_abs_reward,
        unstacked=True,
    )
