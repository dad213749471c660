"""Wrappers that make each step of an environment longer by a sleep, to measure the balance of runs.

`environment.wrappers` takes one by name: `envs_server.envs.slowed:by_10_ms`. A vector of them, such
as ALE's, sleeps for each of its environments, as if it stepped one after another.
"""

import time
from typing import Any

import gymnasium
from gymnasium.vector import VectorEnv, VectorWrapper


class _Slowed(gymnasium.Wrapper[Any, Any, Any, Any]):
    def __init__(self, env: gymnasium.Env[Any, Any], seconds: float) -> None:
        super().__init__(env)
        self._seconds = seconds

    def step(self, action: Any) -> Any:
        time.sleep(self._seconds)  # not work: many of them share few cores
        return super().step(action)


class _SlowedVector(VectorWrapper):
    def __init__(self, env: VectorEnv[Any, Any, Any], seconds: float) -> None:
        super().__init__(env)
        self._seconds = seconds * env.num_envs

    def step(self, actions: Any) -> Any:
        time.sleep(self._seconds)
        return super().step(actions)


class Slowing:
    """A wrapper that adds `seconds` to each step of an environment, or of each one of a vector."""

    takes_vectors = True  # `envs_server.native` then keeps an environment's own vector

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __call__(self, env: Any) -> Any:
        return (_SlowedVector if isinstance(env, VectorEnv) else _Slowed)(env, self._seconds)


by_1_ms, by_10_ms, by_50_ms = Slowing(0.001), Slowing(0.010), Slowing(0.050)
