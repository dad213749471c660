"""What a learner asks to be built, checked and with its factories loaded."""

import itertools
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from envs_server.errors import BuildError
from envs_server.factories import (
    check_allowed,
    is_factory,
    load_factory,
    load_vector_factory,
)
from envs_server.faults.quarantine import Budget
from envs_server.group import Place
from seedrl.wire.seedrl_pb2 import Assign, Environment
from seedrl.wire.version import LEAST_MESSAGE_BYTES, LONGEST_METRIC_BYTES, MOST_METRICS

# Keyword arguments of gymnasium's `make` and `make_vec` that decide what is built rather than how.
_RESERVED = frozenset(
    {"id", "num_envs", "vectorization_mode", "vector_kwargs", "wrappers", "disable_env_checker"}
)


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


def read_recipe(environment: Environment, allowed: Sequence[str]) -> Recipe:
    """Checks `environment` and loads what it names, if `allowed` admits it. Raises BuildError."""
    return read_recipes([environment], allowed)[0]


def read_recipes(environments: Iterable[Environment], allowed: Sequence[str]) -> list[Recipe]:
    """Checks `environments`, and loads what they name if all of it is allowed. Raises BuildError.

    The refusal names everything that `allowed` lacks, and not the first of it alone.
    """
    asked = list(environments)
    ids = (environment.id for environment in asked if is_factory(environment.id))
    wrappers = (name for environment in asked for name in environment.wrappers)
    check_allowed([*ids, *wrappers], allowed)
    return [_recipe(environment, allowed) for environment in asked]


def budget(assign: Assign) -> Budget:
    """What the learner allows each environment, or as much as is usual."""
    asked, usual = assign.environments[assign.groups[0].environment], Budget()
    return Budget(
        asked.failures_per_minute or usual.per_minute, asked.failures_per_hour or usual.per_hour
    )


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


class GroupPlan(NamedTuple):
    """What one group is to be built of.

    Attributes:
      recipe: of each of its environments.
      back_end: what builds and steps them; see `envs_server.building.choose`.
      places: where each of them stands.
      idle: how many before each of them are quarantined.
      seeds: of their first episodes.
      metrics: the numbers that LAST rows carry, "" for one that these environments do not give.
      max_abs_reward: bounds rewards, 0 for no bound.
    """

    recipe: Recipe
    back_end: str
    places: list[Place]
    idle: list[int]
    seeds: list[int]
    metrics: list[str]
    max_abs_reward: float


def plan_groups(assign: Assign, live: Sequence[int], allowed: Sequence[str]) -> list[GroupPlan]:
    """What the groups of an Assign that `check_assign` accepts are to be built of.

    `live` are the positions of environments that are not quarantined, in order. Raises BuildError.
    """
    recipes = read_recipes(assign.environments, allowed)
    metrics = metrics_of(assign)
    positions = iter(live)
    next_position = 0
    plans = []
    for group in assign.groups:
        places = [Place(next(positions), slot) for slot in group.slots]
        idle = _gaps([next_position, *(place.position + 1 for place in places)])
        next_position = places[-1].position + 1
        seeds = [int(seed) for seed in group.seeds]
        asked, recipe = assign.environments[group.environment], recipes[group.environment]
        # What this environment was not asked for is NaN: "" is no name of a number.
        names = [name if name in asked.metrics else "" for name in metrics]
        plan = (recipe, asked.vectorization, places, idle, seeds, names, asked.max_abs_reward)
        plans.append(GroupPlan(*plan))
    return plans


def metrics_of(assign: Assign) -> list[str]:
    """The numbers that LAST rows carry: those that any environment was asked for."""
    return list(dict.fromkeys(name for item in assign.environments for name in item.metrics))


def _gaps(ends: list[int]) -> list[int]:
    """How many positions lie between each of `ends` and the environment that ends at the next."""
    return [after - 1 - before for before, after in itertools.pairwise(ends)]


def _recipe(environment: Environment, allowed: Sequence[str]) -> Recipe:
    factory = vector_factory = None
    if is_factory(environment.id):
        factory = load_factory(environment.id, allowed)
        vector_factory = load_vector_factory(environment.id, allowed)
    wrappers = tuple(load_factory(name, allowed, "wrapper") for name in environment.wrappers)
    arguments = _read_arguments(environment.arguments)
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
