"""Pendulum-v1 without its angular velocity: only where the pendulum points is seen.

An agent has to remember where it pointed to know how fast it turns. Apart from the observation,
`[2] float32`, it is gymnasium's Pendulum-v1: truncated after 200 steps, never terminated.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from gymnasium.wrappers import TransformObservation


def make(**arguments: Any) -> gymnasium.Env[Any, Any]:
    """One masked Pendulum-v1; `arguments` are gymnasium's."""
    # Without gymnasium's checker, which looks at every step.
    env = gymnasium.make("Pendulum-v1", disable_env_checker=True, **arguments)
    # Of gymnasium's (cosine, sine, angular velocity).
    return TransformObservation(env, lambda seen: seen[:2], Box(-1, 1, (2,), np.float32))
