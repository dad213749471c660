"""The limiter of the on-policy queue: in sequences, where that of replay counts steps. Pure.

With S the sequences that acting has completed, D those that updates have taken, n devices, b
sequences of one update on each of them and c the updates that acting may be ahead:

    learning may take an update   iff  every shard holds b sequences
    acting on training slots waits iff S - D >= c n b

S counts a sequence when acting completes it, not when learning takes it in: so what is on its way
between them is bounded, too. At every moment one of the two may continue: what acting has completed
arrives, it is dealt to shards by turns (`seedrl.replay.queue_index.by_turns`), and updates take as
much from each; so from S - D >= n b on, every shard will hold b. Unlike the ratio of trained steps
to environment steps, this does not depend on how long episodes are (a row of FIRST is no step).
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self


class QueueLimiter(NamedTuple):
    """See the module; a `seedrl.replay.limiter.Limiter`.

    Attributes:
      batch_per_device: b, sequences that an update takes from each shard.
      num_devices: n.
      ahead_updates: c, at least 1.
      completed: S.
      taken: D.
      held: sequences that every shard holds at least.
    """

    batch_per_device: int
    num_devices: int
    ahead_updates: int
    completed: int = 0
    taken: int = 0
    held: int = 0

    @property
    def is_ready(self) -> bool:
        """See Limiter."""
        return self.held >= self.batch_per_device

    def may_act(self) -> bool:
        """See Limiter."""
        return self.completed - self.taken < self.ahead_updates * self._batch

    def may_learn(self) -> bool:
        """See Limiter."""
        return self.is_ready

    def acted(self, steps: int, pages: int = 0) -> Self:
        """See Limiter. A page is a sequence."""
        del steps
        return self._replace(completed=self.completed + pages)

    def holds(self, num_sequences: Sequence[int]) -> Self:
        """See Limiter. All shards get as many, whoever fills them."""
        return self._replace(held=min(num_sequences))

    def took(self) -> Self:
        """See Limiter."""
        return self._replace(taken=self.taken + self._batch, held=self.held - self.batch_per_device)

    def applied(self) -> Self:
        """See Limiter. What an update took is gone, whether or not it was applied."""
        return self

    def metrics(self) -> Mapping[str, float]:
        """See Limiter."""
        return {"queue_updates": (self.completed - self.taken) / self._batch}

    def counts(self) -> Mapping[str, float]:
        """See Limiter. Nothing: what waits is known from what is restored of the queue itself."""
        return {}

    def restored(self, counts: Mapping[str, float]) -> Self:
        """See Limiter."""
        del counts
        return self

    @property
    def _batch(self) -> int:
        return self.num_devices * self.batch_per_device
