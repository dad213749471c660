"""Builds the environments that a learner's Assign names, if this env server may build them."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import gymnasium

from envs_server.failures import BuildError, EnvironmentFailedError, Failures, one_line
from envs_server.groups import VectorEnvironment
from envs_server.loop import Loop
from seedrl.wire.seedrl_pb2 import Assign, Environment

_BACK_ENDS = ("sync", "native", "atari")


class Recipe(NamedTuple):
    """An environment to build.

    Attributes:
      id: a registered gymnasium id, or the name of `factory`.
      arguments: keyword arguments of the environment.
      wrappers: each takes an environment and returns one; innermost first.
      factory: builds one environment; None for a registered id.
      vector_factory: builds a vector of them from `num_envs` and `arguments`; None without one.
    """

    id: str
    arguments: dict[str, Any]
    wrappers: tuple[Callable[[Any], Any], ...] = ()
    factory: Callable[..., Any] | None = None
    vector_factory: Callable[..., Any] | None = None

    @property
    def is_atari(self) -> bool:
        """True for a game of ALE's namespace."""
        return self.factory is None and self.id.startswith("ALE/")

    @property
    def takes_vectors(self) -> bool:
        """True if all wrappers take a vector of environments; most take one environment."""
        return all(getattr(each, "takes_vectors", False) for each in self.wrappers)


def read_recipe(environment: Environment, allowed: Sequence[str]) -> Recipe:
    """Checks `environment`, and loads what it names if all of it is allowed. Raises BuildError.

    The refusal names everything that `allowed` lacks, not only the first.
    """
    arguments = _read_arguments(environment.arguments)  # JSON: no argument is ever code
    if ":" not in environment.id and not environment.wrappers:
        return Recipe(environment.id, arguments)
    from envs_server.factories import load_all

    return Recipe(environment.id, arguments, *load_all(environment, allowed))


def _read_arguments(text: str) -> dict[str, Any]:
    expected = """environment.arguments: expected a JSON object such as '{"size": 8}'"""
    try:
        arguments = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise BuildError(f"{expected}, got {text[:100]!r} ({error})") from error
    if not isinstance(arguments, dict):
        raise BuildError(f"{expected}, got {text[:100]!r}")
    return arguments


def choose(recipe: Recipe, vectorization: str) -> str:
    """The name of the back end that `vectorization` means; `auto` takes the fastest.

    That is `atari` for ALE games whose wrappers, if there are any, take vectors; `native` for an
    environment with a vector implementation of its own, no wrappers and a limit of steps that it
    takes; else `sync`, our loop over single environments. `seeded` takes `native`, which has one
    seed for all of its environments, only for what has nothing else.

    Raises BuildError for an unknown name, or another limit of steps.
    """
    spec = None if recipe.factory else gymnasium.registry.get(recipe.id)
    # To `gymnasium.make` null is the registered limit and -1 none. Vector implementations raise an
    # error for null, and end each step of -1.
    steps = recipe.arguments.get("max_episode_steps", 1)
    has_limit = spec is None or (type(steps) is int and steps >= 1)
    if vectorization == "native" and not has_limit:
        raise BuildError(
            f"max_episode_steps: expected at least 1 for vectorization native, got {steps!r:.80}; "
            "use environment.vectorization sync"
        )
    if vectorization in _BACK_ENDS:
        return vectorization
    if vectorization not in ("auto", "seeded", ""):
        raise BuildError(
            f"expected vectorization auto, seeded, {', '.join(_BACK_ENDS)}; got {vectorization!r}"
        )
    # Not only faster: gymnasium's single ones have other frames, and sticky actions.
    if recipe.is_atari and recipe.takes_vectors:
        return "atari"
    if recipe.wrappers:  # most take one environment, not a vector of them
        return "sync"
    has_vector = spec.vector_entry_point if spec else recipe.vector_factory
    has_single = recipe.factory or spec is None or spec.entry_point
    wants_single = vectorization == "seeded" or not has_limit
    return "native" if has_vector and not (wants_single and has_single) else "sync"


def build(
    recipe: Recipe,
    vectorization: str,
    num_envs: int,
    *,
    max_abs_reward: float = 0.0,
    positions: Sequence[int] = (),
    failures: Failures | None = None,
) -> VectorEnvironment:
    """`num_envs` environments of `recipe` on the back end that `choose` names.

    Args:
      max_abs_reward: bounds rewards, 0 for no bound.
      positions: of the environments in `failures`; by default from 0 on.
      failures: counts those of the environments; by default the first one ends the play.

    Raises BuildError, with the environment's own reason on one line.
    """
    own: dict[str, Any] = {
        "max_abs_reward": max_abs_reward,
        "positions": positions or range(num_envs),
        "failures": failures or Failures(num_envs, 0),
    }
    with _one_line_refusal(recipe):
        if (back_end := choose(recipe, vectorization)) != "sync":
            # Here and below, what most env servers never need is imported when it is needed:
            # many of them start on one machine at once.
            from envs_server.native import build_vector

            return build_vector(back_end, *recipe, **own)
        return Loop(lambda: build_one(recipe), **own)


def build_one(recipe: Recipe) -> gymnasium.Env[Any, Any]:
    """One environment of `recipe` with its wrappers. Raises BuildError."""
    with _one_line_refusal(recipe):
        if recipe.factory is None:
            # Gymnasium's checker looks at every step. What matters to a learner the wire checks.
            env = gymnasium.make(recipe.id, disable_env_checker=True, **recipe.arguments)
        else:
            env = recipe.factory(**recipe.arguments)
        if not isinstance(env, gymnasium.Env):
            # Imported here, as below: most env servers have no environment of token ids.
            from envs_server.tokens import TokenGym
            from seedrl.token_env import TokenEnv

            env = TokenGym(env) if isinstance(env, TokenEnv) else env
        env = _environment(env, recipe.id)
        try:
            for wrapper in recipe.wrappers:
                env = _environment(wrapper(env), f"a wrapper of {recipe.id}")
        except BaseException:
            with suppress(BaseException):  # why it has no wrapper is what is reported
                env.close()
            raise
        return env


def _environment(env: Any, source: str) -> gymnasium.Env[Any, Any]:
    # A factory may return anything.
    if isinstance(env, gymnasium.Env):
        return env
    is_class = isinstance(env, type)
    got = f"the class {env.__name__}" if is_class else f"an object of type {type(env).__name__}"
    is_vector = isinstance(env, gymnasium.vector.VectorEnv)
    hint = ". hint: return it from make_vec(num_envs), next to a make() for one" * is_vector
    raise BuildError(
        f"expected a gymnasium.Env or a seedrl.TokenEnv from {source}, got {got}{hint}"
    )


@contextmanager
def _one_line_refusal(recipe: Recipe) -> Iterator[None]:
    try:
        if recipe.is_atari:  # here: without ale-py it is a refusal as well
            from envs_server.native import register_ale

            register_ale()
        yield
    except (BuildError, EnvironmentFailedError):
        raise
    # All: an environment that calls sys.exit, or raises KeyboardInterrupt, has failed.
    except BaseException as error:
        from envs_server.factories import advice
        from seedrl.hints import missing_extra

        reason = missing_extra(error) or f"{one_line(error)}{advice(recipe.id, error)}"
        arguments = f" with {recipe.arguments}" if recipe.arguments else ""
        raise BuildError(f"cannot build {recipe.id}{arguments:.200}: {reason}") from error


def check_assign(assign: Assign, num_envs: int) -> None:
    """Raises BuildError for an Assign that contradicts itself, or an offer of `num_envs`."""
    # A learner of ours sends none: but what follows, which zips these lists, would fail without a
    # word about the reason, or leave environments without a seed.
    sizes = [len(group.slots) for group in assign.groups]
    slots = {slot for group in assign.groups for slot in group.slots}
    seeds = [list(group.seeds) for group in assign.groups]
    is_right = 0 < len(slots) == sum(sizes) <= num_envs and min(sizes) > 0
    if not is_right or [*map(len, seeds)] != sizes or max(map(max, seeds)) >= 2**31:
        raise BuildError(
            f"expected groups of 1 to {num_envs} different slots in all, with a seed below 2^31 "
            f"for each slot, got groups of {sizes} slots with seeds {seeds!s:.100}"
        )
