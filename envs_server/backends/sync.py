"""Steps gymnasium environments one after another in this process."""

from collections.abc import Sequence
from typing import Any

import gymnasium
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from envs_server.recipe import Recipe
from envs_server.vector import VectorEnvironment, from_gymnasium
from seedrl.types import Tree


def build(recipe: Recipe, num_envs: int) -> VectorEnvironment:
    """`num_envs` environments of `recipe`, each with its wrappers and its own seed."""

    def build_one() -> gymnasium.Env[Any, Any]:
        if recipe.factory is None:
            # The checker looks at every step; the wire checks what matters to a learner anyway.
            env = gymnasium.make(recipe.id, disable_env_checker=True, **recipe.arguments)
        else:
            env = recipe.factory(**recipe.arguments)
        for wrapper in recipe.wrappers:
            env = wrapper(env)
        return env

    # No copies: observations are written into a message before the next step.
    env = SyncVectorEnv([build_one] * num_envs, copy=False, autoreset_mode=AutoresetMode.NEXT_STEP)

    def reset(seeds: Sequence[int]) -> Tree:
        return env.reset(seed=list(seeds))[0]

    return from_gymnasium(env, reset)
