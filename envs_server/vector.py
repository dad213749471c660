"""A vector of environments as groups step it.

`envs_server.loop` makes one of single environments; `envs_server.native` takes those that exist as
a vector.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Space

from seedrl.types import Tree


class VectorStep(NamedTuple):
    """Result of one step of E environments, in gymnasium's terms.

    Attributes:
      observation: tree of `[E, *shape]`, only valid until the next step.
      reward: `[E]`, any real dtype.
      terminated: `[E] bool`.
      truncated: `[E] bool`.
      info: the `info` of each environment; if it was merged by a vector implementation, all of it.
      restarted: `[E] bool`, environments that were built again in this step, in the middle of an
        episode or not: the observation is the first of a new one. None if there are none.
    """

    observation: Tree
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    info: Sequence[Any] | Mapping[str, Any] = ()
    restarted: np.ndarray | None = None


class VectorEnvironment(NamedTuple):
    """E environments that reset themselves on the step after the one that ended an episode.

    Attributes:
      observation_space: of one environment.
      action_space: of one environment.
      reset: starts the first episodes from one seed per environment; observations `[E, *shape]`.
      step: takes actions as `action_space` wants them, `[E] int64` or `[E, *shape]` of its dtype.
        Raises ValueFaultError for numbers that a learner cannot take.
      close: frees the environments' resources.
    """

    observation_space: Space[Any]
    action_space: Space[Any]
    reset: Callable[[Sequence[int]], Tree]
    step: Callable[[np.ndarray], VectorStep]
    close: Callable[[], None]


def info_of(info: Sequence[Any] | Mapping[str, Any], row: int) -> Any:
    """The `info` of one environment; of a merged one, without what its masks rule out."""
    if not isinstance(info, Mapping):
        return info[row] if row < len(info) else {}
    own: dict[Any, Any] = {}
    for key, value in info.items():
        if isinstance(value, Mapping):
            own[key] = info_of(value, row)
        elif isinstance(key, str) and not key.startswith("_"):
            mask = info.get(f"_{key}")
            is_array = isinstance(value, np.ndarray) and value.ndim > 0
            has_rows = (is_array or isinstance(value, list | tuple)) and row < len(value)
            if has_rows and (mask is None or mask[row]):
                own[key] = value[row]
    return own
