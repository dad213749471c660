"""Steps Atari games by ALE's vector environment: C++ threads, one 84x84 uint8 frame per step.

The defaults are those of R2D2 (Kapturowski et al. 2019, appendix): 4 frames per step, of which the
last two are max-pooled, up to 30 no-op starts, no sticky actions, episodes of at most 108,000
frames, and rewards as the game gives them. Frames are stacked by the learner. The environment's
arguments override any of them by ALE's own names: `frameskip`, `noop_max`, `maxpool`,
`repeat_action_probability`, `full_action_space`, `episodic_life`, `life_loss_info`,
`use_fire_reset`, `img_height`, `img_width`, `grayscale`, `reward_clipping`, `num_threads`,
`max_num_frames_per_episode`. An id such as ALE/Pong-v5 has sticky actions of 0.25 in gymnasium's
registry: here they are off unless `repeat_action_probability` asks for them.
"""

import math
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from envs_server.errors import BuildError
from envs_server.recipe import Recipe
from envs_server.spaces import check_size
from envs_server.vector import VectorEnvironment, VectorStep, from_gymnasium
from seedrl.types import Tree

_PREFIX = "ALE/"
_SIDE, _MOST_CHANNELS = 84, 3
_DEFAULTS: dict[str, Any] = {
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
_FIXED: dict[str, Any] = {"stack_num": 1, "batch_size": 0, "autoreset_mode": "NextStep"}


def is_atari(recipe: Recipe) -> bool:
    """Whether the recipe names a game of ALE's namespace."""
    return recipe.factory is None and recipe.id.startswith(_PREFIX)


def register() -> None:
    """Makes gymnasium know the ALE ids. Raises BuildError if ale-py is not installed."""
    try:
        import ale_py
    except ImportError as error:
        raise BuildError("expected ale-py for Atari games; pip install 'seedrl[atari]'") from error
    gymnasium.register_envs(ale_py)


def build(recipe: Recipe, num_envs: int) -> VectorEnvironment:
    """`num_envs` games of `recipe`, observations `[84, 84] uint8` (`[84, 84, 3]` in colour).

    Raises BuildError for anything that is not a plain ALE game.
    """
    if not is_atari(recipe) or recipe.wrappers:
        raise BuildError(
            f"expected an ALE/... id without wrappers for vectorization atari, got {recipe.id} "
            f"with {len(recipe.wrappers)} wrappers; use sync"
        )
    if fixed := _FIXED.keys() & recipe.arguments.keys():
        raise BuildError(f"environment.arguments must not contain {', '.join(sorted(fixed))}")
    arguments = {**_DEFAULTS, **recipe.arguments, **_FIXED}
    sides = [arguments.get(name, _SIDE) for name in ("img_height", "img_width")]
    if all(isinstance(side, int) for side in sides):  # of anything else ALE says what it thinks
        check_size(math.prod(sides) * _MOST_CHANNELS, num_envs)
    register()
    from ale_py.vector_env import AtariVectorEnv

    spec = gymnasium.spec(recipe.id)
    env = AtariVectorEnv(spec.kwargs["game"], num_envs, **arguments)
    # Drops the stack's axis, which has one frame; a view, not a copy.
    stack = env.single_observation_space
    assert isinstance(stack, Box)
    env.single_observation_space = Box(0, 255, stack.shape[1:], np.uint8)

    def reset(seeds: Sequence[int]) -> Tree:
        return env.reset(seed=np.asarray(seeds, np.int64))[0][:, 0]

    inner = from_gymnasium(env, reset)

    def step(actions: np.ndarray) -> VectorStep:
        result = inner.step(actions)
        return result._replace(observation=result.observation[:, 0])

    return inner._replace(step=step)
