"""Tasks of MiniGrid (Chevalier-Boisvert et al. 2023) as one-hot images; the extra `minigrid`.

An observation is the agent's view, `[7, 7, 20] uint8`: of each cell 255 at its object (11), its
colour (6) and its state (3), and else 0. Mission and direction are left out: tasks whose mission
differs from episode to episode are not for this factory.
"""

from typing import Any

import gymnasium
import minigrid  # noqa: F401  registers its tasks
import numpy as np
from gymnasium.spaces import Box, Dict
from gymnasium.wrappers import TransformObservation
from minigrid.core.constants import COLOR_TO_IDX, OBJECT_TO_IDX, STATE_TO_IDX

_SIZES = (len(OBJECT_TO_IDX), len(COLOR_TO_IDX), len(STATE_TO_IDX))
_ONE_HOT = [255 * np.eye(size, dtype=np.uint8) for size in _SIZES]


def make(task: str = "MemoryS7", **arguments: Any) -> gymnasium.Env[Any, Any]:
    """The task that MiniGrid registers as `MiniGrid-<task>-v0`; `arguments` are its own."""
    # Without gymnasium's checker, which looks at every step.
    env = gymnasium.make(f"MiniGrid-{task}-v0", disable_env_checker=True, **arguments)
    assert isinstance(env.observation_space, Dict)
    rows, columns, _ = env.observation_space["image"].shape or ()
    space = Box(0, 255, (rows, columns, sum(_SIZES)), np.uint8)
    return TransformObservation(env, _image, space)


def _image(observation: dict[str, Any]) -> np.ndarray:
    # One table a channel: the codes of objects, colours and states mean nothing as numbers.
    codes = np.moveaxis(observation["image"], -1, 0)
    return np.concatenate([table[code] for table, code in zip(_ONE_HOT, codes, strict=True)], -1)
