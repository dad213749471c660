"""Chooses the back end for a recipe and builds with it."""

from collections.abc import Callable

from envs_server.backends import atari, native, sync
from envs_server.factories import one_line
from envs_server.recipe import Recipe
from envs_server.vector import BuildError, VectorEnvironment

BackEnd = Callable[[Recipe, int], VectorEnvironment]

_BACK_ENDS: dict[str, BackEnd] = {
    "sync": sync.build,
    "native": native.build,
    "atari": atari.build,
}


def build(recipe: Recipe, vectorization: str, num_envs: int) -> VectorEnvironment:
    """`num_envs` environments of `recipe` on the named back end; `auto` takes the fastest.

    That is `atari` for ALE games, `native` for an environment with a vector implementation of its
    own, else `sync`; with wrappers always `sync`.

    Raises BuildError, with the environment's own reason on one line.
    """
    try:
        if atari.is_atari(recipe):
            atari.register()
        return _back_end(recipe, vectorization)(recipe, num_envs)
    except BuildError:
        raise
    except Exception as error:
        raise BuildError(f"cannot build {recipe.id}: {one_line(error)}") from error


def _back_end(recipe: Recipe, vectorization: str) -> BackEnd:
    if vectorization not in ("auto", ""):
        if vectorization not in _BACK_ENDS:
            raise BuildError(
                f"expected vectorization auto, {', '.join(_BACK_ENDS)}; got {vectorization!r}"
            )
        return _BACK_ENDS[vectorization]
    if atari.is_atari(recipe) and not recipe.wrappers:
        return atari.build
    return native.build if native.is_available(recipe) else sync.build
