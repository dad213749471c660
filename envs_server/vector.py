"""A vector of environments as the rest of the env server sees it, whatever steps it."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Space
from gymnasium.vector import AutoresetMode, VectorEnv

from envs_server.errors import BuildError
from seedrl.types import Tree


class VectorStep(NamedTuple):
    """What one step of E environments gave; gymnasium's words.

    Attributes:
      observation: tree of `[E, *shape]`, only valid until the next step.
      reward: `[E]`, any real dtype.
      terminated: `[E] bool`.
      truncated: `[E] bool`.
      info: by name, what the environments say beside it: arrays of E entries, or dicts of such; a
        mask `_<name>` says which entries there are, if not all.
    """

    observation: Tree
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    info: Mapping[str, Any] = MappingProxyType({})


class VectorEnvironment(NamedTuple):
    """E environments that reset themselves on the step after the one that ended an episode.

    Attributes:
      observation_space: of one environment.
      action_space: of one environment.
      reset: starts the first episodes from one seed per environment; observations `[E, *shape]`.
      step: actions as `action_space` wants them, `[E] int64` or `[E, *shape]` of its dtype, to
        what they led to.
      close: frees what the environments hold.
    """

    observation_space: Space[Any]
    action_space: Space[Any]
    reset: Callable[[Sequence[int]], Tree]
    step: Callable[[np.ndarray], VectorStep]
    close: Callable[[], None]


def from_gymnasium(env: VectorEnv[Any, Any, Any], reset: Callable[..., Tree]) -> VectorEnvironment:
    """Wraps `env`; `reset` because gymnasium's vector environments differ in how they take seeds.

    Raises BuildError if `env` does not reset itself on the next step: any other mode swallows the
    last observation of an episode or moves it to where it is copied once more.
    """
    mode = env.metadata.get("autoreset_mode")
    if mode != AutoresetMode.NEXT_STEP:
        env.close()
        raise BuildError(
            f"expected a vector environment with autoreset mode NEXT_STEP, {type(env).__name__} "
            f"has {getattr(mode, 'name', mode)}; use vectorization sync"
        )

    def step(actions: np.ndarray) -> VectorStep:
        return VectorStep(*env.step(actions))

    return VectorEnvironment(
        env.single_observation_space, env.single_action_space, reset, step, env.close
    )
