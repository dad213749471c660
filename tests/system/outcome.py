"""Compares what a run of the hashing agent has left with what it must have left."""

from typing import NamedTuple

from learner.acting.actor import over_slots
from learner.serving.leases import environment_seed
from tests.system.harness import Outcome
from tests.system.oracle import Actions, exploration
from tests.system.streams import Streams, check_held, check_memory


class Stream(NamedTuple):
    """What replay holds of one slot's stream under one lease.

    Attributes:
      pages: the numbers of its pages that are held, sorted: 0 is the first of the stream.
      starts: the numbers of those in which sequences start that can be sampled, sorted.
    """

    slot: int
    epoch: int
    shard: int
    pages: list[int]
    starts: list[int]


class Oracle:
    """Of a run; `streams` are those that its replay holds, by their seeds."""

    def __init__(self, outcome: Outcome, lengths: tuple[int, ...], num_actions: Actions) -> None:
        self._outcome = outcome
        self._expected = Streams(lengths, num_actions)
        self.streams: dict[int, Stream] = {}

    def check(self) -> list[str]:
        """The rules that are broken, one a line; fills in `streams`."""
        outcome, config, broken = self._outcome, self._outcome.config, self._expected.broken
        window, page_steps = config.agent.window, config.replay.page_steps
        num_training, slots = config.serving.training_slots, {}
        for slot, epochs in enumerate(outcome.epochs):
            for epoch in range(1, epochs + 1):
                seed = environment_seed(config.seed, slot, epoch)
                self._expected.started(seed, slot, is_evaluation=slot >= num_training)
                slots[seed] = slot, epoch
        for number, shard in enumerate(outcome.shards):
            held = check_memory(
                self._expected,
                shard.state,
                shard.sequences,
                shard.starts,
                num_pages=shard.num_pages,
                page_steps=page_steps,
                priority_exponent=config.replay.priority_exponent,
                exploration=over_slots(exploration(num_training)),
            )
            broken += check_held(held, window, page_steps)
            for seed, (pages, starts) in held.items():
                slot, epoch = slots[seed]
                if slot % len(outcome.shards) != number:
                    broken.append(f"shard {number} holds rows of slot {slot}")
                self.streams[seed] = Stream(slot, epoch, number, sorted(pages), sorted(starts))
        return broken
