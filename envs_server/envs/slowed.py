"""Wrappers that make each step of an environment longer by a sleep, to measure the balance of runs.

`environment.wrappers` takes one by name: `envs_server.envs.slowed:by_10_ms`.
"""

import time
from typing import Any

import gymnasium


class _Slowed(gymnasium.Wrapper[Any, Any, Any, Any]):
    def __init__(self, env: gymnasium.Env[Any, Any], seconds: float) -> None:
        super().__init__(env)
        self._seconds = seconds

    def step(self, action: Any) -> Any:
        time.sleep(self._seconds)  # not work: many of them share few cores
        return super().step(action)


def by_1_ms(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    return _Slowed(env, 0.001)


def by_10_ms(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    return _Slowed(env, 0.010)


def by_50_ms(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    return _Slowed(env, 0.050)
