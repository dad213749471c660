"""Episode returns, as the learner sees them in the streams of its slots."""

from typing import NamedTuple

import numpy as np

from seedrl.types import StepType

_FIRST, _LAST = StepType.FIRST.value, StepType.LAST.value


class Episode(NamedTuple):
    """A finished episode: slot, undiscounted sum of rewards, and length in agent steps."""

    slot: int
    episode_return: float
    length_steps: int


class EpisodeTracker:
    """Sums rewards per slot from FIRST to LAST. Owned by the acting thread.

    Attributes:
      returns, lengths: `[S] float64` and `[S] int64`, of the episodes under way.
    """

    def __init__(self, num_slots: int):
        self.returns = np.zeros(num_slots, np.float64)
        self.lengths = np.zeros(num_slots, np.int64)

    def observe(
        self, slots: np.ndarray, step_type: np.ndarray, reward: np.ndarray
    ) -> list[Episode]:
        """Takes rows `[B]` of distinct slots; returns the episodes that end in them."""
        is_first = step_type == _FIRST
        # FIRST also drops what a cut stream left behind.
        self.returns[slots] = np.where(is_first, 0.0, self.returns[slots] + reward)
        self.lengths[slots] = np.where(is_first, 0, self.lengths[slots] + 1)
        return [
            Episode(int(slot), float(self.returns[slot]), int(self.lengths[slot]))
            for slot in slots[step_type == _LAST]
        ]
