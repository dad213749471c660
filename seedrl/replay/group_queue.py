"""The queue of a token policy: whole groups of rollouts, in order, each trained once."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from seedrl.agents.window import WindowSpec
from seedrl.fields import NonNegativeInt
from seedrl.replay.queue import queue_of
from seedrl.types import Array, Page, StoredStep

if TYPE_CHECKING:  # imports numpy, which reading a configuration does not wait for
    from seedrl.replay.experience import Experience, Scale


@dataclass(frozen=True, kw_only=True)
class GroupQueueConfig:
    """A queue of groups of rollouts, for token policies (GRPO).

    Groups are numbered, and trained in that order. Acting asks the questions of a group only when
    its update is at most `max_lag_updates` after the newest parameters: so the policy lag of every
    token is bounded, and no rollout is ever dropped for its age.

    Attributes:
      max_lag_updates: bound of the policy lag, in updates; at least
        `learning.publish_every_updates - 1`. With 0 acting waits for each update.
    """

    max_lag_updates: NonNegativeInt = 2

    def steps_of_page(self, window: WindowSpec) -> int:
        return window.length  # a rollout is one page

    def check(self, window: WindowSpec, *, training_slots: int, total_steps: int) -> None:
        del window, training_slots, total_steps

    def build(
        self,
        window: WindowSpec,
        *,
        page: Page,
        initial_priorities: Callable[[StoredStep], Array] | None,
        scale: "Scale",
    ) -> "Experience":
        from seedrl.replay.index import tree_bytes

        del window, initial_priorities
        # What may be asked before the update that takes it, and a batch that arrives meanwhile.
        capacity = (self.max_lag_updates + 2) * scale.batch_per_device
        advice = "lower it, or learning.batch_sequences"
        scale.require_memory("replay.max_lag_updates", capacity * tree_bytes(page), advice)
        return queue_of(scale, capacity, self.max_lag_updates + 1)
