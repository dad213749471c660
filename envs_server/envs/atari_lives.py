"""The return of whole Atari games where an episode is a life (the extra `atari`).

With ALE's argument `{"life_loss_info": true}` an episode ends with a life and the game goes on, so
that an agent learns to keep its lives. The return of an episode is then the return of one life.

Source: "Human-level control through deep reinforcement learning" (Mnih et al. 2015), Methods.
"""

from typing import Any, ClassVar

import numpy as np
from gymnasium.vector import VectorEnv, VectorWrapper


class GameReturn(VectorWrapper):
    """Adds the return of a whole game to `info`, as `game_return`, on the game's last step.

    For `environment.wrappers`, with `game_return` in `environment.metrics`; `env` is a vector of
    ALE's games.
    """

    takes_vectors: ClassVar[bool] = True  # see `envs_server.native.build_vector`

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
