"""The games of MinAtar (Young and Tian 2019), Atari games of 10 x 10 cells; the extra `minatar`.

Observations are `[10, 10, C] uint8` images, 255 where there is an object of a channel, else 0. All
six actions, sticky actions (0.1) and difficulty ramping are the defaults, as in the published
results of its authors. `minimal_actions`, which others publish with, leaves out what does nothing.

Unlike MinAtar's own, an episode begins without a sticky action of the one before, and is truncated
after 10,000 steps.

MinAtar is under the GPL: nothing of it is in this project.
"""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from minatar import Environment


class MinAtar(gymnasium.Env[np.ndarray, np.int64]):
    """One game.

    Args:
      name: as MinAtar has it.
      sticky_actions: probability with which an action is ignored and the one before is repeated.
      ramping: True if games that can do so become harder while they are played.
      minimal_actions: True for only those of the six actions that do something.
      max_steps: after which an episode is truncated.
    """

    def __init__(
        self,
        name: str,
        *,
        sticky_actions: float = 0.1,
        ramping: bool = True,
        minimal_actions: bool = False,
        max_steps: int = 10_000,
    ) -> None:
        self._game = Environment(
            name, sticky_action_prob=sticky_actions, difficulty_ramping=ramping
        )
        every_action = range(self._game.num_actions())
        self._actions = self._game.minimal_action_set() if minimal_actions else every_action
        self._max_steps, self._num_steps = max_steps, 0
        self.observation_space = Box(0, 255, tuple(self._game.state_shape()), np.uint8)
        self.action_space = Discrete(len(self._actions))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts an episode; `seed` decides this one and those that follow."""
        super().reset(seed=seed)
        self._game.seed(seed)  # None changes nothing
        self._game.last_action = 0  # which a sticky action would repeat
        self._game.reset()
        self._num_steps = 0
        return self._image(), {}

    def step(self, action: int | np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Takes one of `minimal_actions` or of all."""
        reward, terminated = self._game.act(self._actions[int(action)])
        self._num_steps += 1
        truncated = self._num_steps >= self._max_steps
        return self._image(), float(reward), bool(terminated), truncated, {}

    def _image(self) -> np.ndarray:
        return np.multiply(self._game.state(), 255, dtype=np.uint8)


def _factory(game: str) -> Callable[..., MinAtar]:
    def make(**arguments: Any) -> MinAtar:
        return MinAtar(game, **arguments)

    return make


asterix, breakout, freeway = map(_factory, ("asterix", "breakout", "freeway"))
seaquest, space_invaders = map(_factory, ("seaquest", "space_invaders"))
