"""Atari games whose frames are blanked at random: a test of memory (the extra `atari`).

Each frame, the first of an episode too, is black with probability 0.5, so that neither the newest
frame nor a few stacked ones show how the ball moves. Apart from that it is ALE's game with our
usual settings: 4 frames a step, no sticky actions.

Source: "Deep Recurrent Q-Learning for Partially Observable MDPs" (Hausknecht and Stone 2015),
"Flickering Atari games".
"""

from typing import Any

import ale_py
import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv, VectorObservationWrapper

from envs_server.native import atari_vector

gymnasium.register_envs(ale_py)


class _Flickering(VectorObservationWrapper):
    # Takes the axis of one frame away, and blanks whole frames.
    def __init__(self, env: VectorEnv[Any, Any, Any], probability: float) -> None:
        super().__init__(env)
        self._probability = probability
        self._random = np.random.default_rng()  # until a reset has a seed

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        if seed is not None:
            # One seed for the flicker and all games: each game has one that is drawn from it.
            self._random = np.random.default_rng(seed)
            seed = self._random.integers(2**31, size=self.num_envs)
        return super().reset(seed=seed, options=options)

    def observations(self, observations: np.ndarray) -> np.ndarray:
        frames = observations[:, 0]
        frames[self._random.random(len(frames)) < self._probability] = 0
        return frames


def make_vec(
    num_envs: int, *, game: str = "Pong", probability: float = 0.5, **arguments: Any
) -> VectorEnv[Any, Any, Any]:
    """`num_envs` games in one object: observations `[E, 84, 84] uint8`.

    Args:
      game: as in the id `ALE/Pong-v5`.
      probability: with which a frame is blanked.
      arguments: of ALE's vector environment.
    """
    return _Flickering(atari_vector(f"ALE/{game}-v5", arguments, num_envs), probability)


class _Single(gymnasium.Env[np.ndarray, np.int64]):
    # The only environment of a vector. gymnasium's own single games scale frames in another way.
    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        self._env = env
        self.observation_space = env.single_observation_space
        self.action_space = env.single_action_space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        observation, _ = self._env.reset(seed=int(self.np_random.integers(2**31)))
        return observation[0].copy(), {}  # the vector's memory is that of its next step

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, _ = self._env.step(np.array([action]))
        return observation[0].copy(), float(reward[0]), bool(terminated[0]), bool(truncated[0]), {}

    def close(self) -> None:
        self._env.close()


def make(**arguments: Any) -> gymnasium.Env[np.ndarray, np.int64]:
    """One game; `arguments` are those of `make_vec`."""
    return _Single(make_vec(1, **arguments))
