"""Steps environments by their own vector implementation.

For a registered id this is gymnasium's vector entry point; for a factory `package.module:factory`
it is the callable `package.module:factory_vec`, which takes `num_envs` beside the factory's own
arguments and returns a gymnasium VectorEnv.
"""

from collections.abc import Sequence

import gymnasium

from envs_server.errors import BuildError
from envs_server.recipe import Recipe
from envs_server.vector import VectorEnvironment, from_gymnasium
from seedrl.types import Tree


def is_available(recipe: Recipe) -> bool:
    """Whether the environment has a vector implementation that honours the whole recipe."""
    if recipe.wrappers:
        return False
    if recipe.factory is not None:
        return recipe.vector_factory is not None
    spec = gymnasium.registry.get(recipe.id)
    return spec is not None and spec.vector_entry_point is not None


def build(recipe: Recipe, num_envs: int) -> VectorEnvironment:
    """`num_envs` environments of `recipe` in one object.

    A vector environment takes one seed for all its environments: the first of those it is given.

    Raises BuildError if there is no vector implementation or if wrappers are asked for.
    """
    if recipe.wrappers:
        raise BuildError(
            f"{recipe.id} cannot be wrapped under vectorization native; use sync or no wrappers"
        )
    if recipe.factory is None:
        env = gymnasium.make_vec(
            recipe.id, num_envs, vectorization_mode="vector_entry_point", **recipe.arguments
        )
    elif recipe.vector_factory is not None:
        env = recipe.vector_factory(num_envs=num_envs, **recipe.arguments)
    else:
        raise BuildError(f"{recipe.id} has no vector factory {recipe.id}_vec; use sync")

    def reset(seeds: Sequence[int]) -> Tree:
        return env.reset(seed=seeds[0])[0]

    return from_gymnasium(env, reset)
