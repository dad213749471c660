"""What acting has done on all inference devices together."""

import math
import threading
from collections.abc import Collection


class Totals:
    """Counts that the acting threads share: each adds, anybody reads.

    Attributes:
      training_steps: environment steps of training slots in the whole run; whoever resumes a run
        sets it.
      abandoned_rows: rows of full pages that were not sent, because the run was ending.
      absent_metrics: those of `environment.metrics` that no episode has reported.
      measured_episodes: how many could have, if there are such metrics.
    """

    def __init__(self, metrics: Collection[str] = (), total_steps: float = math.inf):
        """`total_steps`: training steps after which the run ends."""
        self._lock = threading.Lock()
        self._total_steps = total_steps
        self.training_steps = 0
        self.abandoned_rows = 0
        # Replaced rather than changed: another thread reads it.
        self.absent_metrics = tuple(metrics)
        self.measured_episodes = 0

    @property
    def is_complete(self) -> bool:
        """Whether all steps of the run are taken, however long that takes to be noticed."""
        return self.training_steps >= self._total_steps

    def add(self, *, steps: int = 0, abandoned_rows: int = 0, measured_episodes: int = 0) -> None:
        """Counts on."""
        with self._lock:
            self.training_steps += steps
            self.abandoned_rows += abandoned_rows
            self.measured_episodes += measured_episodes

    def saw_metric(self, name: str) -> None:
        """An episode has reported this metric."""
        if name in self.absent_metrics:
            with self._lock:
                self.absent_metrics = tuple(each for each in self.absent_metrics if each != name)
