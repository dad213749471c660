"""Builds the environments that a learner's Assign names, if this env server may build them."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import gymnasium

from envs_server.errors import ADVICE, BuildError, EnvironmentFailedError, one_line
from envs_server.failures import Budget, Failures
from envs_server.loop import Place, build_loop
from envs_server.vector import VectorEnvironment
from seedrl.programs import extras
from seedrl.wire.seedrl_pb2 import Assign, Environment
from seedrl.wire.version import LEAST_MESSAGE_BYTES, LONGEST_METRIC_BYTES, MOST_METRICS

# Keyword arguments of gymnasium's `make` and `make_vec` that decide what is built rather than how.
_RESERVED = frozenset(
    {"id", "num_envs", "vectorization_mode", "vector_kwargs", "wrappers", "disable_env_checker"}
)
# Pong-v0, PongDeterministic-v4, PongNoFrameskip-v4, Pong-ram-v0 and the like.
_OLD_ATARI = re.compile(r"([A-Z][A-Za-z]+?)(?:-ram)?(?:Deterministic|NoFrameskip)?-v[045]")
_ALE_PREFIX = "ALE/"
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
        return self.factory is None and self.id.startswith(_ALE_PREFIX)

    @property
    def has_single(self) -> bool:
        """True unless there is only a vector implementation; also if there is nothing at all."""
        spec = gymnasium.registry.get(self.id)
        return self.factory is not None or spec is None or spec.entry_point is not None

    @property
    def has_vector(self) -> bool:
        """True if there is a vector implementation that honours the whole recipe."""
        if self.wrappers or self.factory is not None:
            return not self.wrappers and self.vector_factory is not None
        spec = gymnasium.registry.get(self.id)
        return spec is not None and spec.vector_entry_point is not None


def read_recipe(environment: Environment, allowed: Sequence[str]) -> Recipe:
    """Checks `environment` and loads what it names, if `allowed` admits it. Raises BuildError."""
    return read_recipes([environment], allowed)[0]


def read_recipes(environments: Iterable[Environment], allowed: Sequence[str]) -> list[Recipe]:
    """Checks `environments`, and loads what they name if all of it is allowed. Raises BuildError.

    The refusal names everything that `allowed` lacks, not only the first.
    """
    asked = list(environments)
    names = [environment.id for environment in asked if ":" in environment.id]
    names += [name for environment in asked for name in environment.wrappers]
    if names:
        from envs_server.factories import check_allowed

        check_allowed(names, allowed)
    return [_recipe(environment, allowed) for environment in asked]


def _recipe(environment: Environment, allowed: Sequence[str]) -> Recipe:
    arguments = _read_arguments(environment.arguments)
    if ":" not in environment.id and not environment.wrappers:
        return Recipe(environment.id, arguments)
    from envs_server.factories import load_factory, load_vector_factory

    factory = vector_factory = None
    if ":" in environment.id:
        factory = load_factory(environment.id, allowed)
        vector_factory = load_vector_factory(environment.id, allowed)
    wrappers = tuple(load_factory(name, allowed, "wrapper") for name in environment.wrappers)
    return Recipe(environment.id, arguments, wrappers, factory, vector_factory)


def _read_arguments(text: str) -> dict[str, Any]:
    try:
        arguments = json.loads(text or "{}")
    except ValueError as error:
        raise BuildError(f"expected a JSON object in environment.arguments: {error}") from error
    except RecursionError as error:
        raise BuildError("expected environment.arguments that are nested less deep") from error
    if not isinstance(arguments, dict):
        raise BuildError(f"expected a JSON object in environment.arguments, got {text[:100]!r}")
    if reserved := _RESERVED & arguments.keys():
        raise BuildError(f"environment.arguments must not contain {', '.join(sorted(reserved))}")
    return arguments


def choose(recipe: Recipe, vectorization: str) -> str:
    """The name of the back end that `vectorization` means; `auto` takes the fastest.

    That is `atari` for ALE games, `native` for an environment with a vector implementation of its
    own, else `sync`, our loop over single environments; with wrappers always `sync`. `seeded` takes
    `native`, which has one seed for all of its environments, only for what has nothing else. Raises
    BuildError for an unknown name.
    """
    if vectorization not in ("auto", "seeded", ""):
        if vectorization not in _BACK_ENDS:
            raise BuildError(
                f"expected vectorization auto, seeded, {', '.join(_BACK_ENDS)}; got "
                f"{vectorization!r}"
            )
        return vectorization
    if recipe.is_atari and not recipe.wrappers:
        return "atari"
    is_native = recipe.has_vector and not (vectorization == "seeded" and recipe.has_single)
    return "native" if is_native else "sync"


def build(
    recipe: Recipe,
    vectorization: str,
    num_envs: int,
    *,
    max_abs_reward: float = 0.0,
    places: Sequence[Place] = (),
    failures: Failures | None = None,
) -> VectorEnvironment:
    """`num_envs` environments of `recipe` on the back end that `choose` names.

    Args:
      max_abs_reward: bounds rewards, 0 for no bound.
      places, failures: see `build_loop`; vector implementations know no single environments.

    Raises BuildError, with the environment's own reason on one line.
    """
    with _one_line_refusal(recipe):
        match choose(recipe, vectorization):
            case "atari" if not recipe.is_atari or recipe.wrappers:
                raise BuildError(
                    "expected an ALE/... id without wrappers for vectorization atari, got "
                    f"{recipe.id} with {len(recipe.wrappers)} wrappers; use sync"
                )
            case "atari":
                from envs_server.native import atari

                return atari(recipe.id, recipe.arguments, num_envs, max_abs_reward)
            case "native":
                from envs_server.native import from_factory

                _check_native(recipe)
                vector = recipe.vector_factory
                return from_factory(vector, recipe.id, recipe.arguments, num_envs, max_abs_reward)
        return build_loop(
            lambda: build_one(recipe),
            num_envs,
            max_abs_reward=max_abs_reward,
            places=places,
            failures=failures,
        )


def _check_native(recipe: Recipe) -> None:
    if recipe.wrappers:
        raise BuildError(
            f"{recipe.id} cannot be wrapped under vectorization native; use sync or no wrappers"
        )
    if recipe.factory is not None and recipe.vector_factory is None:
        raise BuildError(f"{recipe.id} has no vector factory {recipe.id}_vec; use sync")


def build_one(recipe: Recipe) -> gymnasium.Env[Any, Any]:
    """One environment of `recipe` with its wrappers. Raises BuildError."""
    with _one_line_refusal(recipe):
        if recipe.factory is None:
            # The checker looks at every step; the wire checks what matters to a learner anyway.
            env = gymnasium.make(recipe.id, disable_env_checker=True, **recipe.arguments)
        else:
            env = recipe.factory(**recipe.arguments)
            if env is None:
                raise BuildError(
                    f"expected a gymnasium.Env from {recipe.id}, got None; did the factory forget "
                    "`return`?"
                )
        for wrapper in recipe.wrappers:
            env = wrapper(env)
        if not isinstance(env, gymnasium.Env):
            raise BuildError(
                f"expected a gymnasium.Env from {recipe.id} and its wrappers, got a "
                f"{type(env).__name__}"
            )
        return env


@contextmanager
def _one_line_refusal(recipe: Recipe) -> Iterator[None]:
    try:
        if recipe.is_atari:
            from envs_server.native import register_ale

            register_ale()
        yield
    except (BuildError, EnvironmentFailedError):
        raise
    # All: an environment that calls sys.exit, or raises KeyboardInterrupt, has failed.
    except BaseException as error:
        reason = extras.describe(error) or f"{one_line(error)}{_hint(recipe.id, error)}"
        raise BuildError(f"cannot build {recipe.id}: {reason}") from error


def _hint(name: str, error: BaseException) -> str:
    """The id that may have been meant, if one is not registered; gymnasium guesses some."""
    if game := _OLD_ATARI.fullmatch(name):
        # Names of before gymnasium 1.0: the variants are arguments of ALE/... now.
        return f" An Atari game is named ALE/{game[1]}-v5; or {ADVICE}, as package.module:factory"
    if isinstance(error, gymnasium.error.NameNotFound) and "Did you mean" not in str(error):
        return f" Name an environment of your own as package.module:factory; or {ADVICE}"
    if isinstance(error, gymnasium.error.NamespaceNotFound):
        return f" Nobody imports it here: {ADVICE}, as package.module:factory"
    return ""


def budget(assign: Assign) -> Budget:
    """How often the learner allows each environment to fail, or our own default."""
    asked, usual = assign.environments[assign.groups[0].environment], Budget()
    return Budget(
        asked.failures_per_minute or usual.per_minute, asked.failures_per_hour or usual.per_hour
    )


def metrics_of(assign: Assign) -> list[str]:
    """The numbers that LAST rows carry: those that any environment was asked for."""
    return list(dict.fromkeys(name for item in assign.environments for name in item.metrics))


def check_assign(assign: Assign, num_envs: int) -> None:
    """Raises BuildError for an Assign that contradicts itself, or an offer of `num_envs`."""
    groups, environments = assign.groups, assign.environments
    sizes = [len(group.slots) for group in groups]
    if not sizes or min(sizes) < 1 or sum(sizes) > num_envs:
        raise BuildError(f"expected groups of at most {num_envs} slots in all, got {sizes}")
    if [len(group.seeds) for group in groups] != sizes:
        raise BuildError("expected one seed for each slot of a group in Assign")
    if any(seed >= 2**31 for group in groups for seed in group.seeds):
        raise BuildError("expected seeds below 2^31 in Assign")
    if len({slot for group in groups for slot in group.slots}) < sum(sizes):
        raise BuildError("expected each slot once in Assign")
    if 0 < assign.max_message_bytes < LEAST_MESSAGE_BYTES:
        raise BuildError(
            f"expected max_message_bytes of at least {LEAST_MESSAGE_BYTES} in Assign, got "
            f"{assign.max_message_bytes}"
        )
    if any(group.environment >= len(environments) for group in groups):
        raise BuildError(
            f"expected groups of one of the {len(environments)} environments of Assign, got "
            f"{[group.environment for group in groups]}"
        )
    names = [name for environment in environments for name in environment.metrics]
    is_short = all(len(name.encode()) <= LONGEST_METRIC_BYTES for name in names)
    if len(names) > MOST_METRICS or not is_short:
        raise BuildError(
            f"expected at most {MOST_METRICS} metrics of at most {LONGEST_METRIC_BYTES} bytes in "
            f"Assign, got {len(names)}"
        )
