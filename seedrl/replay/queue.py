"""The configuration of the on-policy queue."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from seedrl.agents.window import WindowSpec
from seedrl.errors import ConfigError
from seedrl.fields import PositiveInt
from seedrl.types import Array, Page, StoredStep

if TYPE_CHECKING:  # imports numpy, which reading a configuration does not wait for
    from seedrl.replay.experience import Experience, Scale

# How many sequences of each other environment may pass while one fills its own.
_SLOWEST = 8


@dataclass(frozen=True, kw_only=True)
class QueueConfig:
    """A first-in-first-out queue of sequences on the device, for agents that learn on policy.

    Each sequence is trained once, in order of arrival, over all devices. None is ever overwritten:
    acting waits instead. One that an update skips, because something was not finite, is not trained
    again. Waiting sequences are saved at the end with `checkpoint.replay`, and otherwise lost: the
    account `waiting` of the ledger's last line counts their time steps.

    Attributes:
      ahead_updates: number of updates' worth of complete sequences that may wait before acting
        waits, at least 1.
      max_lag_updates: bound of the policy lag of every time step, in updates. A sequence that would
        be trained with a larger one, because its environment took so long to fill it, is dropped
        when it arrives: `stale` of the ledger. None: the lag of an environment that is eight
        times slower than the others, `ahead_updates + learning.publish_every_updates +
        8 * training_slots / batch_sequences`.
    """

    # With none, acting would wait for an update that waits for acting.
    ahead_updates: PositiveInt = 2
    max_lag_updates: int | None = None

    # Not a field: with as many sequences as slots an update is a round; see `learning.schedule`.
    hands_out_rounds: ClassVar[bool] = True

    def steps_of_page(self, window: WindowSpec) -> int:
        return window.length  # a sequence is one page

    def check(self, window: WindowSpec, *, training_slots: int, total_steps: int) -> None:
        del training_slots, total_steps
        if window.stride != window.length:
            raise ConfigError(
                "replay: a queue hands out each time step once: expected sequences that begin where"
                f" the one before ends, agent.window.stride {window.length}, got {window.stride}; "
                "choose prioritized replay, or an agent that learns on policy"
            )

    def build(
        self,
        window: WindowSpec,
        *,
        page: Page,
        initial_priorities: Callable[[StoredStep], Array] | None,
        scale: "Scale",
    ) -> "Experience":
        from seedrl.replay.index import stale_pages, tree_bytes

        del window, initial_priorities  # a page is a sequence, and all count alike
        # Each host fills and empties a queue of its own.
        scale = scale.of_host
        batch = scale.num_devices * scale.batch_per_device
        max_lag = self.lag_bound(
            training_slots=scale.training_slots,
            batch_sequences=batch,
            publish_every_updates=scale.publish_every_updates,
        )
        capacity = self.capacity_sequences(scale)
        advice = "lower it, learning.batch_sequences or serving.training_slots"
        scale.require_memory("replay.ahead_updates", capacity * tree_bytes(page), advice)
        stale = functools.partial(stale_pages, batch=batch, max_lag=max_lag)
        return queue_of(scale, capacity, self.ahead_updates)._replace(stale=stale)

    def lag_bound(
        self, *, training_slots: int, batch_sequences: int, publish_every_updates: int
    ) -> int:
        """The largest policy lag of a trained time step. Raises ConfigError if acting has more."""
        ordinary = self.ahead_updates + publish_every_updates
        if self.max_lag_updates is None:
            return ordinary + _SLOWEST * training_slots // batch_sequences
        if self.max_lag_updates < ordinary:
            raise ConfigError(
                "replay.max_lag_updates: expected at least replay.ahead_updates + "
                f"learning.publish_every_updates, {ordinary}, got {self.max_lag_updates}; with "
                "less, what acting is allowed to be ahead would be dropped"
            )
        return self.max_lag_updates

    def capacity_sequences(self, scale: "Scale") -> int:
        """Sequences that each device has room for."""
        # What the limiter allows, what all slots may complete in the batch that it allows last, and
        # again as much, so that there is room for whatever arrives at once.
        return self.ahead_updates * scale.batch_per_device + 2 * scale.training_slots


def queue_of(scale: "Scale", capacity: int, ahead_updates: int) -> "Experience":
    """A queue that drops nothing.

    Args:
      capacity: sequences that each device has room for.
      ahead_updates: see `QueueConfig`.
    """
    import numpy as np

    from seedrl.replay.buffer import queue_memory
    from seedrl.replay.experience import Experience
    from seedrl.replay.index import QueueIndex, by_turns
    from seedrl.replay.rate_limiter import QueueLimiter

    batch = scale.batch_per_device
    return Experience(
        memory=queue_memory(capacity),
        index=functools.partial(QueueIndex, capacity_sequences=capacity, batch=batch),
        limiter=QueueLimiter(
            batch_per_device=batch,
            num_devices=scale.num_devices,
            ahead_updates=ahead_updates,
            in_rounds=scale.in_rounds,
        ),
        example_draw=np.zeros(batch, np.int32),
        shard_of=by_turns,
        accounts=QueueIndex.accounts,
    )
