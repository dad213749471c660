"""Steps gymnasium environments one after another in this process."""

import contextlib
import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import Space, spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from envs_server.backends.noted import noted
from envs_server.errors import BuildError
from envs_server.faults.culprit import close_each, misshapen_row, row_of
from envs_server.recipe import Recipe
from envs_server.spaces import check_size
from envs_server.vector import VectorEnvironment, VectorStep, from_gymnasium
from seedrl.types import Tree
from seedrl.wire.values import ValueFaultError


def has_single(recipe: Recipe) -> bool:
    """Whether there is more than a vector implementation; true too if there is nothing at all."""
    spec = gymnasium.registry.get(recipe.id)
    return recipe.factory is not None or spec is None or spec.entry_point is not None


def build(
    recipe: Recipe,
    num_envs: int,
    idle_before: Sequence[int] = (),
    notes: Sequence[Callable[[bool], None]] = (),
) -> VectorEnvironment:
    """`num_envs` environments of `recipe`, each with its wrappers and its own seed.

    `idle_before` says of each how many are built before it that are never used: those that are
    quarantined. Otherwise what they take up, a port or a display, another would take in their
    place. Each of `notes` takes whether that environment is at work.

    Observations are cast to what the space declares; `reset` and `step` raise ValueFaultError for a
    number that does not fit.
    """
    # No copies: observations are written into a message before the next step.
    idle: list[gymnasium.Env[Any, Any]] = []
    builders = [
        functools.partial(_build_after, recipe, num_idle, idle, num_envs)
        for num_idle in idle_before or [0] * num_envs
    ]
    if notes:
        builders = [functools.partial(noted, *both) for both in zip(builders, notes, strict=True)]
    env = SyncVectorEnv(builders, copy=False, autoreset_mode=AutoresetMode.NEXT_STEP)

    check = _cast_check(env.single_observation_space)

    def reset(seeds: Sequence[int]) -> Tree:
        observation = env.reset(seed=list(seeds))[0]
        check(env._env_obs)
        return observation

    inner = from_gymnasium(env, reset)

    def step(actions: np.ndarray) -> VectorStep:
        try:
            result = inner.step(actions)
        except ValueError as error:
            _blame(error, env)
            raise
        check(env._env_obs)
        return result

    def close() -> None:
        env.closed = True  # or gymnasium would close them a second time
        close_each(env.envs)
        for each in idle:
            each.close()

    return inner._replace(step=step, close=close)


def _blame(error: ValueError, env: SyncVectorEnv) -> None:
    """Raises ValueFaultError for an observation that has no place among those of the others."""
    if row_of(error) is None:
        found: list[Any] = list(env._env_obs)
        row = misshapen_row(env.single_observation_space, found)
        if row is not None:
            shape, expected = np.shape(found[row]), env.single_observation_space.shape
            text = f"expected an observation of shape {expected}, got one of {shape}"
            raise ValueFaultError(text, row) from error


def _cast_check(space: Space[Any]) -> Callable[[Iterable[Any]], None]:
    """Raises ValueFaultError for observations that gymnasium's cast to their dtype has changed.

    Only where an environment returns another dtype than its space declares; otherwise it costs a
    comparison. Looks at Box spaces and at dicts and tuples of them.
    """
    match space:
        case spaces.Dict():
            inner = {key: _cast_check(item) for key, item in space.spaces.items()}
            return lambda found: _check_each(inner, list(found))
        case spaces.Tuple():
            places = dict(enumerate(map(_cast_check, space.spaces)))
            return lambda found: _check_each(places, list(found))
        case spaces.Box():
            return functools.partial(_check_leaves, space.dtype)
    return lambda found: None


def _check_each(checks: Mapping[Any, Callable[[Iterable[Any]], None]], found: list[Any]) -> None:
    for key, check in checks.items():
        check([observation[key] for observation in found])


def _check_leaves(dtype: np.dtype[Any], found: Iterable[Any]) -> None:
    for row, value in enumerate(found):
        if getattr(value, "dtype", None) is not dtype:
            _check_leaf(row, value, dtype)


def _check_leaf(row: int, value: Any, dtype: np.dtype[Any]) -> None:
    array = np.asarray(value)
    if np.can_cast(array.dtype, dtype):
        return
    with np.errstate(all="ignore"):
        cast = array.astype(dtype)
    both = np.isfinite(cast) == np.isfinite(array) if dtype.kind == "f" else cast == array
    if not np.all(both):
        position = tuple(np.argwhere(~np.asarray(both))[0].tolist())
        raise ValueFaultError(
            f"expected an observation that fits into {dtype}, as its space declares, got "
            f"{array[position]} of {array.dtype} at {list(position)}",
            row,
        )


def _build_after(
    recipe: Recipe,
    num_idle: int,
    idle: list[gymnasium.Env[Any, Any]],
    num_envs: int,
) -> gymnasium.Env[Any, Any]:
    for _ in range(num_idle):
        with contextlib.suppress(Exception):  # it is quarantined, whatever it says
            idle.append(_build_env(recipe))
    env = _build_env(recipe)
    check_size(_num_bytes(env.observation_space), num_envs)  # before the others are built
    return env


def _num_bytes(space: Any) -> int:
    """Of one observation; of dicts, tuples and whatever has no shape it is left to the spec."""
    shape, dtype = getattr(space, "shape", None), getattr(space, "dtype", None)
    return 0 if shape is None or dtype is None else math.prod(shape) * np.dtype(dtype).itemsize


def _build_env(recipe: Recipe) -> gymnasium.Env[Any, Any]:
    env = build_one(recipe)
    if not isinstance(env, gymnasium.Env):
        raise BuildError(
            f"expected a gymnasium.Env from {recipe.id} and its wrappers, got a "
            f"{type(env).__name__}"
        )
    return env


def build_one(recipe: Recipe) -> gymnasium.Env[Any, Any]:
    """One environment of `recipe` with its wrappers."""
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
    return env
