"""What acting has done on all inference devices together."""

import math
import threading
from collections.abc import Collection


class Totals:
    """Counts that the acting threads share: each adds, anybody reads.

    Attributes:
      steps: environment steps of training slots in the whole run, by inference device; those of
        earlier sessions are with the first, and those of other hosts, if there are any, come last.
        Each thread adds to its own alone, so that no batch waits for a lock.
      total_steps: after which the run ends.
      abandoned_rows: rows of full pages that were not sent, because the run was ending.
      absent_metrics: those of `environment.metrics` that no episode has reported.
      measured_episodes: how many could have, if there are such metrics.
    """

    def __init__(
        self,
        metrics: Collection[str] = (),
        total_steps: float = math.inf,
        *,
        earlier_steps: int = 0,
        num_devices: int = 1,
    ):
        """`earlier_steps`: training steps of the run's earlier sessions."""
        self._lock = threading.Lock()
        self.total_steps = total_steps
        self.steps = [earlier_steps] + [0] * (num_devices - 1)
        self.abandoned_rows = 0
        # Replaced rather than changed: another thread reads it.
        self.absent_metrics = tuple(metrics)
        self.measured_episodes = 0

    @property
    def training_steps(self) -> int:
        """Of all inference devices."""
        return sum(self.steps)

    def add(self, *, abandoned_rows: int = 0, measured_episodes: int = 0) -> None:
        """Counts on."""
        with self._lock:
            self.abandoned_rows += abandoned_rows
            self.measured_episodes += measured_episodes

    def saw_metric(self, name: str) -> None:
        """An episode has reported this metric."""
        if name in self.absent_metrics:
            with self._lock:
                self.absent_metrics = tuple(each for each in self.absent_metrics if each != name)
