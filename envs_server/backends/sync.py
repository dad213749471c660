"""Steps gymnasium environments one after another in this process."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import gymnasium
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from envs_server.recipe import Recipe
from envs_server.vector import VectorEnvironment, from_gymnasium
from seedrl.types import Tree


def has_single(recipe: Recipe) -> bool:
    """Whether there is more than a vector implementation; true too if there is nothing at all."""
    spec = gymnasium.registry.get(recipe.id)
    return recipe.factory is not None or spec is None or spec.entry_point is not None


def build(recipe: Recipe, num_envs: int) -> VectorEnvironment:
    """`num_envs` environments of `recipe`, each with its wrappers and its own seed."""
    # No copies: observations are written into a message before the next step.
    env = SyncVectorEnv(
        [partial(build_one, recipe)] * num_envs,
        copy=False,
        autoreset_mode=AutoresetMode.NEXT_STEP,
    )

    def reset(seeds: Sequence[int]) -> Tree:
        return env.reset(seed=list(seeds))[0]

    return from_gymnasium(env, reset)


def build_one(recipe: Recipe) -> gymnasium.Env[Any, Any]:
    """One environment of `recipe` with its wrappers."""
    if recipe.factory is None:
        # The checker looks at every step; the wire checks what matters to a learner anyway.
        env = gymnasium.make(recipe.id, disable_env_checker=True, **recipe.arguments)
    else:
        env = recipe.factory(**recipe.arguments)
    for wrapper in recipe.wrappers:
        env = wrapper(env)
    return env
