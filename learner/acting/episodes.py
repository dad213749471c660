"""Episode returns, as the learner sees them in the streams of its slots."""

import numpy as np

from seedrl.types import StepType

_FIRST, _LAST = StepType.FIRST.value, StepType.LAST.value


class EpisodeTracker:
    """Sums rewards per slot from FIRST to LAST. Owned by the acting thread.

    Attributes:
      returns, lengths: `[S] float64` and `[S] int64`, of the episodes under way; of those that have
        ended until the next begins. Lengths are in agent steps.
    """

    def __init__(self, num_slots: int):
        self.returns = np.zeros(num_slots, np.float64)
        self.lengths = np.zeros(num_slots, np.int64)

    def observe(self, slots: np.ndarray, step_type: np.ndarray, reward: np.ndarray) -> list[int]:
        """Takes rows `[B]` of distinct slots; returns the slots whose episode ends in them."""
        is_first = step_type == _FIRST
        # FIRST also drops what a cut stream left behind.
        self.returns[slots] = np.where(is_first, 0.0, self.returns[slots] + reward)
        self.lengths[slots] = np.where(is_first, 0, self.lengths[slots] + 1)
        ended: list[int] = slots[step_type == _LAST].tolist()
        return ended
