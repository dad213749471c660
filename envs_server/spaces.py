"""Gymnasium spaces as an EnvSpec."""

from typing import Any

from gymnasium import spaces

from envs_server.vector import BuildError
from seedrl.specs import ArraySpec, EnvSpec
from seedrl.types import Tree


def env_spec(observation_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> EnvSpec:
    """The spec of an environment with these spaces.

    Box, Discrete (an int64 scalar), MultiBinary and MultiDiscrete are arrays; Dict and Tuple nest.
    Raises BuildError for any other observation space, and for actions that are not Discrete.
    """
    if not isinstance(action_space, spaces.Discrete):
        raise BuildError(f"expected a Discrete action space, got {_show(action_space)}")
    return EnvSpec(_tree("observation", observation_space), int(action_space.n))


def first_action(action_space: spaces.Space[Any]) -> int:
    """The environment's own number for action 0."""
    assert isinstance(action_space, spaces.Discrete), "env_spec has refused it"
    return int(action_space.start)


def _tree(path: str, space: spaces.Space[Any]) -> Tree:
    match space:
        case spaces.Dict():
            for key in space.spaces:
                if not isinstance(key, str):
                    raise BuildError(f"expected strings as keys of {path}, got {key!r}")
            return {key: _tree(f"{path}.{key}", item) for key, item in space.spaces.items()}
        case spaces.Tuple():
            return tuple(_tree(f"{path}.{i}", item) for i, item in enumerate(space.spaces))
        case spaces.Discrete():
            return ArraySpec((), "int64")
        case spaces.Box() | spaces.MultiBinary() | spaces.MultiDiscrete():
            try:
                return ArraySpec(tuple(map(int, space.shape)), space.dtype.name)
            except ValueError as error:
                raise BuildError(f"{path}: {error}") from error
    raise BuildError(
        "expected a Box, Discrete, MultiBinary or MultiDiscrete space, or a Dict or Tuple of them, "
        f"for {path}, got {_show(space)}"
    )


def _show(space: spaces.Space[Any]) -> str:
    return " ".join(str(space).split())[:150]
