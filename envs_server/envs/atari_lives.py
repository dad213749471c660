"""Wrappers of Atari games in which an episode is a life (the extra `atari`).

With ALE's argument `{"life_loss_info": true}` an episode ends with a life and the game goes on, so
that an agent learns to keep its lives. The return of an episode is then the return of one life.
Each wrapper is for `environment.wrappers`, and takes a vector of ALE's games.

Source: "Human-level control through deep reinforcement learning" (Mnih et al. 2015), Methods.
"""

from typing import Any, ClassVar

import numpy as np
from gymnasium.vector import VectorEnv, VectorWrapper

_FIRE = 1


class GameReturn(VectorWrapper):
    """Adds the return of a whole game to `info`, as `game_return`, on the game's last step.

    For `game_return` in `environment.metrics`.
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


class FireReset(VectorWrapper):
    """Presses FIRE at the start of every life but a game's first, where play waits for it.

    For games whose action 1 is FIRE, such as Breakout. The agent's action is ignored at that step
    anyway. At a game's start the agent presses it, or ALE with `{"use_fire_reset": true}`, after
    which up to `noop_max` frames pass before the agent acts.

    Source: `FireResetEnv` of OpenAI's baselines, which the usual Atari settings contain.
    """

    takes_vectors: ClassVar[bool] = True

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        super().__init__(env)
        self._is_lost = np.zeros(self.num_envs, np.bool_)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self._is_lost[:] = False
        return super().reset(seed=seed, options=options)

    def step(self, actions: np.ndarray) -> Any:
        result = super().step(np.where(self._is_lost, _FIRE, actions))
        _, _, terminated, truncated, info = result
        self._is_lost = terminated & ~truncated & (info["lives"] > 0)
        return result


class ClipReward(VectorWrapper):
    """Every reward is its sign, -1, 0 or 1; the last wrapper, so that others see the points.

    `agent.reward_clip` clips what `agent.normalize_rewards` has divided; this is before both.

    Source: Mnih et al. 2015, Methods.
    """

    takes_vectors: ClassVar[bool] = True

    def step(self, actions: np.ndarray) -> Any:
        observation, reward, *others = super().step(actions)
        return observation, np.sign(reward), *others
