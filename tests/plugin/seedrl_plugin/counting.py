"""An environment that shows any step, reward or action that is swapped, shifted, repeated or lost.

Its observation is (environment, incarnation, episode, step), and its reward is a hash of those and
of the action received. The seed holds the first two: `seed = incarnation << 16 | environment`.
"""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

_MASK = 0xFFFF_FFFF
_IMAGE_SIDE = 84


def reward_of(environment: Any, incarnation: Any, episode: Any, step: Any, action: Any) -> Any:
    """The reward that comes with the observation (environment, incarnation, episode, step).

    `action` is the one that led there from step `step - 1`. An integer from 0 to 65,535, exact in
    float32, for ints; `[...] uint64` for integer arrays that broadcast.
    """
    fields: list[Any] = [environment, incarnation, episode, step, action]
    if any(isinstance(field, (np.ndarray, np.generic)) for field in fields):
        fields = [np.atleast_1d(np.asarray(field).astype(np.uint64)) for field in fields]
    mixed: Any = 0x811C_9DC5
    for field in fields:
        # A product of two 32-bit numbers fits into uint64: no overflow before the mask.
        mixed = (mixed ^ field) * 0x9E37_79B1 & _MASK
        mixed = mixed ^ mixed >> 15
    return mixed & 0xFFFF


def image_of(observation: np.ndarray, side: int = _IMAGE_SIDE) -> np.ndarray:
    """`[side, side] uint8`: the 16 little-endian bytes of `observation [4] uint32`, repeated."""
    octets = observation.astype("<u4").view(np.uint8)
    return np.tile(octets, side * side // len(octets)).reshape(side, side)


class Counting(gymnasium.Env[np.ndarray, np.int64]):
    """Counts episodes and steps.

    Args:
      lengths: steps of the episodes, in order, at least 1 each. Episodes 0, 2, 4... terminate,
        the others are truncated.
      num_actions: number of actions; all of them only matter to the reward.
      image: observations are `image_of` the four numbers instead of `[4] uint32`.
      image_side: height and width of such an image, a multiple of 4.
    """

    def __init__(
        self,
        *,
        lengths: Sequence[int] = (7,),
        num_actions: int = 5,
        image: bool = False,
        image_side: int = _IMAGE_SIDE,
    ) -> None:
        if not lengths or min(lengths) < 1:
            raise ValueError(f"expected lengths of at least one step, got {list(lengths)}")
        if image_side < 4 or image_side % 4:
            raise ValueError(f"expected an image_side that is a multiple of 4, got {image_side}")
        self._lengths = tuple(lengths)
        self._image_side = image_side if image else None
        self.action_space = Discrete(num_actions)
        self.observation_space = Box(0, _MASK, (4,), np.uint32)
        if image:
            self.observation_space = Box(0, 255, (image_side, image_side), np.uint8)
        self._environment = self._incarnation = self._step = 0
        self._episode = -1

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts the next episode, with a seed the first one."""
        super().reset(seed=seed)
        if seed is not None:
            self._environment, self._incarnation = seed & 0xFFFF, seed >> 16
            self._episode = -1
        self._episode += 1
        self._step = 0
        return self._observation(), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Counts on. The info says which `action` was received, and counts the `step`."""
        self._step += 1
        received = int(action)
        reward = float(reward_of(*self._fields(), received))
        is_over = self._step == self._lengths[self._episode % len(self._lengths)]
        is_even = self._episode % 2 == 0
        info = {"action": received, "step": self._step}
        return self._observation(), reward, is_over and is_even, is_over and not is_even, info

    def _fields(self) -> tuple[int, int, int, int]:
        return self._environment, self._incarnation, self._episode, self._step

    def _observation(self) -> np.ndarray:
        observation = np.array(self._fields(), np.uint32)
        return image_of(observation, self._image_side) if self._image_side else observation


make = Counting


class RealActions(gymnasium.ActionWrapper[np.ndarray, np.ndarray, np.int64]):
    """Takes one action of `[n] float32` within `bounds`, and hands its code on as the action.

    With `counts` it takes `[n] int64` of that many actions each.
    """

    def __init__(
        self,
        environment: Counting,
        bounds: Sequence[tuple[float, float]] = (),
        counts: Sequence[int] = (),
    ) -> None:
        super().__init__(environment)
        if counts:
            self.action_space = gymnasium.spaces.MultiDiscrete(counts)
        else:
            low, high = np.array(bounds, np.float32).T
            self.action_space = gymnasium.spaces.Box(low, high)

    def action(self, action: np.ndarray) -> np.int64:
        """See `code_of`."""
        return np.int64(code_of(action))


def code_of(action: Any) -> int:
    """A number of 32 bits for `[n]` numbers of float32: other for any others."""
    code = 0x811C_9DC5
    # Plus 0: -0 and 0 are the same number.
    for bits in (np.asarray(action, np.float32) + np.float32(0)).view(np.uint32).tolist():
        code = (code ^ bits) * 0x9E37_79B1 & 0xFFFF_FFFF
        code ^= code >> 15
    return code


def make_real(lengths: Sequence[int] = (7,), **actions: Any) -> RealActions:
    """The factory that a configuration names: `seedrl_plugin.counting:make_real`."""
    return RealActions(Counting(lengths=lengths), **actions)
