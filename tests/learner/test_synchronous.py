"""Synchronous: every row that is trained was acted by the parameters that its round began with.

Real serving and a real queue, whatever env servers do; acting writes down who acted on what, and
learning looks at it.
"""

import random
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

from learner.report.metrics import Tally
from learner.report.stages import Laps
from learner.schedule import Alternating
from learner.serving.batching import BatchQueue, Pending, free_running, rounds
from learner.serving.core import Batch, Serving
from learner.serving.leases import Group, Lease, NoFreeSlotError, SlotTable
from learner.serving.ledger import ALWAYS, residues
from seedrl.replay.index import QueueIndex
from seedrl.types import StepType, TimeStep

SLOTS, EVALUATION, K = 5, 2, 4


class Row(NamedTuple):
    """Of a page: which row of which stream it is, and the version that acted on it."""

    stream: int
    number: int
    version: int


class Fleet:
    """Env servers that come and go; each group has one step in flight."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        slots = SlotTable(training=SLOTS, evaluation=EVALUATION, seed=seed)
        free = free_running(0.0)
        self.serving = Serving(slots, page_steps=K, rule=rounds(), evaluation_rule=free)
        self.leases: list[Lease] = []
        self.num_lost = self.num_disabled = 0

    def move(self) -> None:
        """Sends all that may be sent; sometimes an env server is lost, or one arrives."""
        if self.leases and self.random.random() < 0.05:
            self.lose(self.random.choice(self.leases))
        # Nobody plays the slot of a disabled environment, for a while.
        is_needed = self.serving.slots.num_free > sum(each.num_disabled for each in self.leases)
        if self.serving.slots.num_free and (is_needed or self.random.random() < 0.05):
            try:
                wanted = self.random.randint(1, 4), self.random.randint(1, 2)
                disabled = int(self.random.random() < 0.3)
                lease = self.serving.lease(*wanted, "an env server")
                lease.num_disabled = disabled
                self.serving.ready(lease)
                self.leases.append(lease)
            except NoFreeSlotError:
                pass  # the last batch of one that was lost is still being computed
        for lease in self.leases:
            for group in lease.groups:
                if not (group.queued or group.dispatched) and self.random.random() < 0.7:
                    self._send(group)

    def lose(self, lease: Lease) -> None:
        self.leases.remove(lease)
        if self.random.random() < 0.3:
            self.serving.fail(lease)
        self.serving.end(lease)
        self.num_lost += 1

    def _send(self, group: Group) -> None:
        size = len(group.slots)
        kind = StepType.MID if group.sequence else StepType.FIRST
        timestep = TimeStep(np.full(size, kind, np.uint8), np.zeros(size), np.ones(size), ())
        self.serving.step(Pending(group, group.sequence, timestep, 0.0))


class Acting:
    """Acts with `version`; a page that is full waits for learning."""

    laps = Laps(Tally(), lambda: 0.0)

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.version = 0
        self.full: list[list[Row]] = []
        self.num_evaluated = 0
        self._open: dict[int, list[Row]] = {}
        self._numbers: dict[int, int] = {}

    def run_once(self) -> None:
        self.fleet.move()
        serving = self.fleet.serving
        for queue in serving.queues:
            if queue.seconds_until_due(0.0) == 0.0:
                batch = self._take(queue)
                if self.fleet.random.random() < 0.02:
                    self.fleet.lose(self.fleet.random.choice(self.fleet.leases))
                serving.answered(batch)
                assert residues(serving.accounts(), ALWAYS) == []

    def _take(self, queue: BatchQueue) -> Batch:
        batch = self.fleet.serving.take(queue)
        if batch.role == "evaluation":
            self.num_evaluated += 1
            return batch
        assert sorted(batch.slots) == self.fleet.serving.live_slots("training").tolist()
        disabled = sum(lease.num_disabled for lease in self.fleet.leases)
        assert len(batch.slots) >= SLOTS - max(disabled, len(self.fleet.serving._failed))
        self.fleet.num_disabled += len(batch.slots) < SLOTS
        for slot, stream, position in zip(
            batch.slots.tolist(), batch.streams.tolist(), batch.positions.tolist(), strict=True
        ):
            number = self._numbers[stream] = self._numbers.get(stream, -1) + 1
            page = [] if position == 0 else self._open[slot]
            assert len(page) == position
            self._open[slot] = [*page, Row(stream, number, self.version)]
            if position == K - 1:
                self.full.append(self._open.pop(slot))
        return batch


class Learning:
    """Takes a batch of the oldest pages, once there are enough; publishes when it has finished."""

    laps = Laps(Tally(), lambda: 0.0)

    def __init__(self, acting: Acting) -> None:
        self.acting = acting
        self.index = QueueIndex(capacity_sequences=4 * SLOTS, batch=SLOTS)
        self.num_rows = 0
        self.pages: dict[int, list[Row]] = {}
        self.updates = 0
        self.lags: list[int] = []

    def run_once(self) -> bool:
        arrived, self.acting.full = self.acting.full, []
        self.pages.update(zip(self.index.plan([0] * len(arrived)).tolist(), arrived, strict=True))
        if not self.index.num_sequences:
            return False
        for place in self.index.draw().tolist():
            if place < 0:  # a repeat
                continue
            page = self.pages.pop(place)
            self.num_rows += K
            first = page[0]
            assert [row[:2] for row in page] == [(first.stream, first.number + i) for i in range(K)]
            self.lags += [self.updates - row.version for row in page]
        self.updates += 1
        return True

    def finish_update(self) -> None:
        self.acting.version = self.updates


@pytest.mark.parametrize("seed", range(2))
def test_every_trained_row_was_acted_with_the_version_that_its_round_began_with(seed: int) -> None:
    acting = Acting(fleet := Fleet(seed))
    learning = Learning(acting)
    channel = SimpleNamespace(wake_acting=lambda: None, is_complete=False)
    parts: Any = SimpleNamespace(acting=[acting], learning=learning, channel=channel)
    regime = Alternating(parts, "synchronous")
    for _ in range(1000):
        regime._run_once()
        while regime._may_owe:
            regime._run_once()
        assert not learning.pages
    assert set(learning.lags) == {0}
    assert learning.updates > 30
    assert len(learning.lags) == learning.num_rows
    assert fleet.num_lost > 30
    assert fleet.num_disabled > 10  # batches without the slot of a disabled environment
    assert fleet.serving.ledger["discarded"] > 100
    assert acting.num_evaluated > 30
    regime.end_waits()


def test_each_update_of_a_turn_is_a_piece_of_work_of_its_own() -> None:
    """A turn of many updates was taken for a hang, and the end of a run waited for it."""
    done: list[str] = []

    def learn() -> bool:
        done.append("update" if (owes := done[-1] == "act" or len(done) < 4) else "nothing")
        return owes

    laps = Laps(Tally(), lambda: 0.0)
    acting = SimpleNamespace(laps=laps, run_once=lambda: done.append("act"))
    learning = SimpleNamespace(laps=laps, run_once=learn, finish_update=lambda: None)
    channel = SimpleNamespace(is_complete=False)
    parts: Any = SimpleNamespace(acting=[acting], learning=learning, channel=channel)
    turn = Alternating(parts, "deterministic")
    for number in range(1, 7):
        turn._run_once()
        assert len(done) == number
    assert done == ["act", "update", "update", "update", "nothing", "act"]
