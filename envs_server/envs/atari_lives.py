"""The return of whole Atari games whose episodes are lives (the extra `atari`).

With ALE's argument `{"life_loss_info": true}` an episode ends with a life and the game goes on, so
that an agent learns to keep its lives. The return of an episode is then that of a life. The wrapper
`envs_server.envs.atari_lives:game_return` adds that of the game to `info`, for
`environment.metrics`.

Source: "Human-level control through deep reinforcement learning" (Mnih et al. 2015), Methods.
"""

from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv, VectorWrapper


class _GameReturn(VectorWrapper):
    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        super().__init__(env)
        self._returns = np.zeros(self.num_envs)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self._returns[:] = 0
        return super().reset(seed=seed, options=options)

    def step(self, actions: np.ndarray) -> Any:
        observation, reward, terminated, truncated, info = super().step(actions)
        self._returns += reward
        # A game without lives has none from the start.
        is_over = truncated | (terminated & (info["lives"] == 0))
        info |= {"game_return": self._returns.copy(), "_game_return": is_over}
        self._returns[is_over] = 0
        return observation, reward, terminated, truncated, info


def game_return(env: VectorEnv[Any, Any, Any]) -> VectorEnv[Any, Any, Any]:
    """`env`, a vector of ALE's games, with `info["game_return"]` on the last step of a game."""
    return _GameReturn(env)


game_return.takes_vectors = True  # type: ignore[attr-defined]  # read by envs_server.native
