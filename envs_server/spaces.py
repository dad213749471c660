"""Gymnasium spaces as an EnvSpec, and actions of the wire as those of a space."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from envs_server.failures import BuildError
from seedrl.specs import (
    ACTION_MASK,
    MOST_BOUNDS,
    NO_BOUND,
    ActionSpec,
    ArraySpec,
    BoxSpec,
    DiscreteSpec,
    EnvSpec,
    MultiDiscreteSpec,
    TokensSpec,
    has_mask,
)
from seedrl.types import Tree


def env_spec(observation_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> EnvSpec:
    """The spec of an environment with these spaces.

    As observations, Box, Discrete (an int64 scalar), MultiBinary and MultiDiscrete are arrays, with
    the bounds that they declare; Dict and Tuple nest. `action_mask` of a Dict may be integers, and
    is sent as bools. As actions there are Discrete, MultiDiscrete, MultiBinary, and Box of floats.
    Raises BuildError for any other space, and for what is beyond the bounds of a spec.
    """
    try:
        action = _action(action_space)
    except ValueError as error:
        raise BuildError(f"actions of {_show(action_space)}: {error}") from error
    tree = _tree("observation", observation_space)
    if has_mask(tree):
        mask = tree[ACTION_MASK]
        # Integers in most environments. Of bools the wire checks that each is 0 or 1.
        is_whole = isinstance(mask, ArraySpec) and np.dtype(mask.dtype).kind in "biu"
        tree[ACTION_MASK] = ArraySpec(mask.shape, "bool") if is_whole else mask
    try:
        return EnvSpec(tree, action)
    except ValueError as error:
        raise BuildError(str(error)) from error


def with_info_mask(spec: EnvSpec) -> EnvSpec:
    """The spec of an environment whose observations get the action mask of its `info`.

    Raises BuildError for actions that have no mask.
    """
    shape = (spec.action.num_actions,) if isinstance(spec.action, DiscreteSpec) else ()
    others = spec.observation
    others = others if isinstance(others, Mapping) else {"observation": others}
    try:
        return EnvSpec({**others, ACTION_MASK: ArraySpec(shape, "bool")}, spec.action)
    except ValueError as error:
        raise BuildError(f"info[{ACTION_MASK!r}] as {error}") from error


def to_own_actions(action_space: spaces.Space[Any]) -> Callable[[np.ndarray], np.ndarray]:
    """Maps actions of the wire to those of an environment with this space, which has a spec.

    `[E] int32` from 0 become `[E] int64` from the space's start, `[E, *shape] int32` those of the
    space's dtype. `[E, *shape] float32` become `[E, *shape]` of the space's dtype, between its
    bounds; see `BoxSpec`.
    """
    if not isinstance(action_space, spaces.Box):
        is_one = isinstance(action_space, spaces.Discrete)
        dtype = np.dtype(np.int64 if is_one else action_space.dtype)
        # On the wire all count from 0: no agent has to know where a space begins.
        start = np.asarray(getattr(action_space, "start", 0), dtype)  # MultiBinary has none
        return lambda actions: actions.astype(dtype) + start
    action = _action(action_space)
    assert isinstance(action, BoxSpec)
    rescale, low, high = action.rescaler(), action_space.low, action_space.high
    # Clipped again: a bound of float32 must not be missed by the last bit of float64.
    return lambda actions: np.clip(rescale(actions).astype(low.dtype), low, high)


def _action(space: spaces.Space[Any]) -> ActionSpec:
    # Of `envs_server.tokens`, which is not loaded for any other space.
    if isinstance(tokens := getattr(space, "tokens", None), TokensSpec):
        return tokens
    match space:
        case spaces.Discrete():
            return DiscreteSpec(int(space.n))
        case spaces.MultiDiscrete():
            return MultiDiscreteSpec(_shape(space), tuple(map(int, space.nvec.ravel())))
        case spaces.MultiBinary():
            # Two choices each: agents need no kind of action for it.
            return MultiDiscreteSpec(_shape(space), (2,) * math.prod(_shape(space)))
        case spaces.Box() if np.issubdtype(space.dtype, np.floating):
            low, high = (bound.ravel().tolist() for bound in (space.low, space.high))
            return BoxSpec(_shape(space), tuple(low), tuple(high))
    raise ValueError(
        "expected a Discrete, MultiDiscrete or MultiBinary action space, or a Box of floats"
    )


def _tree(path: str, space: spaces.Space[Any]) -> Tree:
    match space:
        case spaces.Dict():
            for key in space.spaces:  # gymnasium takes any; in a message a key is text
                if not isinstance(key, str):
                    raise BuildError(f"expected strings as keys of {path}, got {key!r}")
            return {key: _tree(f"{path}.{key}", item) for key, item in space.spaces.items()}
        case spaces.Tuple():
            return tuple(_tree(f"{path}.{i}", item) for i, item in enumerate(space.spaces))
    try:
        return _array(space)
    except ValueError as error:
        raise BuildError(f"{error}, for {path}, got {_show(space)}") from error


def _array(space: spaces.Space[Any]) -> ArraySpec:
    match space:
        case spaces.Discrete():
            last = space.start + space.n - 1  # observations keep the space's own numbers
            return ArraySpec((), "int64", *_bounds(space.start, last), is_categorical=True)
        case spaces.MultiDiscrete():
            bounds = _bounds(space.start, space.start + space.nvec - 1)
            return ArraySpec(_shape(space), space.dtype.name, *bounds, is_categorical=True)
        case spaces.MultiBinary():
            return ArraySpec(_shape(space), space.dtype.name, (0.0,), (1.0,))
        case spaces.Box():
            low, high = _bounds(space.low, space.high)
            is_declared = all(abs(bound) < NO_BOUND for bound in (*low, *high))
            if space.dtype == np.uint8 and (low, high) == ((0.0,), (255.0,)):
                is_declared = False  # those of every byte
            return ArraySpec(_shape(space), space.dtype.name, *((low, high) if is_declared else ()))
    raise ValueError("expected a Box, Discrete, MultiBinary, MultiDiscrete, Dict or Tuple space")


def _shape(space: spaces.Space[Any]) -> tuple[int, ...]:
    return tuple(map(int, space.shape or ()))


def _bounds(low: Any, high: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    # One number where all elements have it, or where they are many: then the outermost.
    low, high = (np.asarray(bound, np.float64).ravel() for bound in (low, high))
    is_one = (low == low[:1]).all() and (high == high[:1]).all()
    if low.size and (is_one or low.size > MOST_BOUNDS):
        low, high = low.min(keepdims=True), high.max(keepdims=True)
    return tuple(low.tolist()), tuple(high.tolist())


def _show(space: spaces.Space[Any]) -> str:
    return " ".join(str(space).split())[:150]  # of a Dict it can be pages
