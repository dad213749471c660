"""The serving core: a model of all that may happen, batches, and cuts."""

import math
from collections import Counter

import numpy as np
import pytest

from learner.serving.batching import (
    BatchQueue,
    BatchRule,
    Pending,
    free_running,
    lock_step,
    rounds,
)
from learner.serving.core import Batch, Serving
from learner.serving.leases import (
    Group,
    Lease,
    NoFreeSlotError,
    Role,
    SlotRange,
    SlotTable,
)
from learner.serving.ledger import ALWAYS, residues
from seedrl.types import StepType, TimeStep
from seedrl.wire.contract import RESET_MINOR
from seedrl.wire.framing import WireError

K = 3  # steps of a page
DEADLINE = 0.5
FIRST, MID, LAST = StepType


def _serving(training: int, evaluation: int) -> Serving:
    slots = SlotTable(training=training, evaluation=evaluation, seed=0)
    return Serving(slots, page_steps=K, rule=free_running(DEADLINE))


def _timestep(step_type: np.ndarray) -> TimeStep:
    return TimeStep(step_type, np.zeros(len(step_type)), np.ones(len(step_type)), ())


def _types(group: Group, step_type: StepType) -> np.ndarray:
    return np.full(len(group.slots), step_type, np.uint8)


def _step(serving: Serving, group: Group, step_type: StepType = FIRST, now: float = 0.0) -> None:
    """Rows carry their slots as rewards."""
    timestep = _timestep(_types(group, step_type))._replace(reward=group.slots.astype(np.float32))
    serving.step(Pending(group, group.sequence, timestep, now))


def _lane(serving: Serving, role: Role = "training") -> BatchQueue:
    (queue,) = (queue for queue in serving.queues if queue.role == role)
    return queue


def _act(serving: Serving) -> Batch:
    batch = serving.take(_lane(serving))
    serving.answered(batch)
    return batch


def _ready(serving: Serving, num_envs: int, num_groups: int, peer: str) -> Lease:
    """A lease whose environments are built."""
    lease = serving.lease(num_envs, num_groups, peer)
    serving.ready(lease)
    return lease


class Driver:
    """Random env servers and a random acting thread, and the rules that hold at every moment."""

    def __init__(self, seed: int):
        self.random = np.random.default_rng(seed)
        self.serving = _serving(training=7, evaluation=3)
        self.leases: list[Lease] = []
        self.groups: list[Group] = []  # of all leases, also those that have ended
        self.batches: list[Batch] = []  # taken, not yet answered
        self.last: dict[int, np.ndarray] = {}  # the group's last accepted step types
        self.struck = 0
        self.answered: Counter[int] = Counter()  # rows by stream
        self.positions: dict[int, list[int]] = {}  # by stream, in the order of taking
        self.cut: list[tuple[Group, int]] = []  # streams that a restart has ended

    def run(self, num_operations: int) -> None:
        weights = {"lease": 2, "end": 1, "take": 8, "answer": 8, "step": 18, "break_a_rule": 3}
        share = np.array(list(weights.values())) / sum(weights.values())
        for operation in self.random.choice(list(weights), num_operations, p=share):
            getattr(self, operation)()
            assert self.check() is None

    def lease(self) -> None:
        try:
            envs, groups = self.random.integers(1, 5, 2)
            lease = _ready(self.serving, int(envs), int(groups), "peer")
        except NoFreeSlotError:
            ending = any(i.group.lease.ended for batch in self.batches for i in batch.pending)
            assert self.serving.slots.num_free < (int(envs) if ending else 1)
            return
        self.leases.append(lease)
        self.groups.extend(lease.groups)

    def end(self) -> None:
        if not self.leases:
            return
        lease = self.leases.pop(self.random.integers(len(self.leases)))
        self.struck += sum(len(group.slots) for group in lease.groups if group.queued)
        self.serving.end(lease)
        self.serving.end(lease)  # a second time does nothing

    def step(self) -> None:
        waiting = [g for g in self._open_groups() if not g.queued and not g.dispatched]
        if not waiting:
            return
        group = waiting[self.random.integers(len(waiting))]
        types = self._legal_types(group)
        if self.random.integers(10) == 0:  # an environment was restarted in its episode
            row = self.random.integers(len(types))
            if self.last.get(id(group), _types(group, LAST))[row] != LAST:
                types[row] = FIRST
                self.cut.append((group, int(group.streams[row])))
        self.serving.step(Pending(group, group.sequence, _timestep(types), 0.0))
        self.last[id(group)] = types

    def take(self) -> None:
        queue = self.serving.queues[self.random.integers(2)]
        if queue.seconds_until_due(0.0) is None:
            return
        batch = self.serving.take(queue)
        self.batches.append(batch)
        for stream, position in zip(batch.streams, batch.positions, strict=True):
            self.positions.setdefault(int(stream), []).append(int(position))

    def answer(self) -> None:
        if not self.batches:
            return
        batch = self.batches.pop(self.random.integers(len(self.batches)))
        self.answered.update(map(int, batch.streams))
        expected = [item.group for item in batch.pending if not item.group.lease.ended]
        assert self.serving.answered(batch) == expected

    def break_a_rule(self) -> None:
        if not self.groups:
            return
        group = self.groups[self.random.integers(len(self.groups))]
        sequence, types, account = group.sequence, self._legal_types(group), "rejected"
        if group.lease.ended:
            account = "fenced"
        elif group.queued or group.dispatched:
            if self.random.integers(2):
                sequence, account = group.sequence - 1, "duplicate"
        else:
            if self.random.integers(2):
                sequence = group.sequence + int(self.random.choice([-1, 1, 7]))
                account = "rejected" if sequence > group.sequence else "duplicate"
            else:
                if FIRST not in types:
                    return  # a row that is FIRST too early is a cut
                types[types == FIRST] = self.random.choice([MID, LAST])
        before = Counter(self.serving.ledger)
        with pytest.raises(WireError):
            self.serving.step(Pending(group, sequence, _timestep(types), 0.0))
        rows = len(group.slots)
        assert self.serving.ledger - before == Counter({account: rows, "received": rows})

    def check(self) -> str | None:
        """The first rule that is broken."""
        accounts = self.serving.accounts()
        queued = sum(len(group.slots) for group in self._open_groups() if group.queued)
        dispatched = sum(len(batch.slots) for batch in self.batches)
        if broken := residues(accounts, ALWAYS):
            return broken[0]
        expected = self._expected() | {"queued": queued, "dispatched": dispatched}
        if any(accounts.get(account, 0) != rows for account, rows in expected.items()):
            return f"expected {expected}, got {accounts}"
        busy = [batch.slots for batch in self.batches]
        live = [group.slots for group in self._open_groups()]
        for slots in (busy, live):
            if len(np.unique(np.concatenate([[], *slots]))) != sum(map(len, slots)):
                return f"a slot is taken twice: {slots}"
        free = set(range(10)) - set(np.concatenate([[], *busy, *live]).astype(int).tolist())
        if self.serving.slots.num_free != len(free):
            return f"expected {len(free)} free slots, got {self.serving.slots.num_free}"
        for queue in self.serving.queues:
            role = queue.role
            of_role = np.concatenate([[], *(g.slots for g in self._open_groups(role))])
            if sorted(of_role) != self.serving.live_slots(role).tolist():
                return f"live slots of role {role}"
            if len(of_role) != queue.num_live:
                return f"live rows of role {role}"
        if any(p != [n % K for n in range(len(p))] for p in self.positions.values()):
            return f"positions: {self.positions}"
        return None

    def _open_groups(self, role: Role | None = None) -> list[Group]:
        groups = [group for lease in self.leases for group in lease.groups]
        return [group for group in groups if role in (None, group.role)]

    def _legal_types(self, group: Group) -> np.ndarray:
        last = self.last.get(id(group), _types(group, LAST))
        drawn = self.random.choice([MID, MID, LAST], len(last)).astype(np.uint8)
        return np.where(last == LAST, np.uint8(FIRST), drawn)

    def _expected(self) -> dict[str, int]:
        expected = Counter({"struck": self.struck})
        for group in self.groups:
            for stream in group.streams:
                rows = self.answered[int(stream)]
                if group.role == "evaluation":
                    expected["evaluation"] += rows
                    continue
                is_over = group.lease.ended and not group.dispatched
                expected["discarded" if is_over else "partial"] += rows % K
                expected["completed"] += rows - rows % K
        for group, stream in self.cut:
            rows = self.answered[stream]
            if group.role == "evaluation":
                expected["evaluation"] += rows
                continue
            expected["discarded"] += rows % K
            expected["completed"] += rows - rows % K
        return dict(expected)


@pytest.mark.parametrize("seed", range(5))
def test_every_row_is_in_one_account_whatever_happens(seed: int) -> None:
    driver = Driver(seed)
    driver.run(700)
    seen = ("struck", "completed", "discarded", "fenced", "duplicate", "rejected")
    assert min(driver.serving.ledger[account] for account in seen) > 0


def test_one_slow_group_delays_the_others_to_the_deadline_and_no_longer() -> None:
    serving = _serving(training=3, evaluation=0)
    groups = [_ready(serving, 1, 1, peer).groups[0] for peer in ("slow", "quick", "gone")]
    now = 0.0
    for step_type in (FIRST, MID, MID, LAST):  # "slow" never sends a step
        _step(serving, groups[1], step_type, now)
        assert _lane(serving).seconds_until_due(now) == DEADLINE
        now += DEADLINE
        assert _lane(serving).seconds_until_due(now) == 0.0
        batch = _act(serving)
        assert batch.slots.tolist() == groups[1].slots.tolist() and batch.is_late
    _step(serving, groups[0], FIRST, now)
    _step(serving, groups[1], FIRST, now)
    assert not _act(serving).is_late


def test_the_deadline_of_training_may_change() -> None:
    serving = _serving(training=3, evaluation=1)
    quick, _ = [_ready(serving, 2, 1, peer).groups[0] for peer in ("quick", "slow")]
    _step(serving, quick)
    serving.set_deadline(9 * DEADLINE)
    assert _lane(serving).seconds_until_due(DEADLINE) == 8 * DEADLINE
    assert _lane(serving, "evaluation").rule.deadline_seconds == DEADLINE


def test_slots_that_are_only_reserved_keep_nobody_waiting() -> None:
    serving = _serving(training=8, evaluation=0)
    (group,) = _ready(serving, 1, 1, "quick").groups
    building = serving.lease(7, 1, "building")
    assert serving.live_slots("training").tolist() == group.slots.tolist()
    _step(serving, group)
    assert _lane(serving).seconds_until_due(0.0) == 0.0
    serving.ready(building)
    assert len(serving.live_slots("training")) == 8
    assert _lane(serving).seconds_until_due(0.0) == DEADLINE
    never_ready = serving.slots.leases[building.number]
    serving.end(never_ready)
    assert _lane(serving).num_live == 1


def test_a_first_row_in_an_episode_cuts_its_own_stream_and_no_other() -> None:
    serving = _serving(training=2, evaluation=0)
    (group,) = serving.lease(2, 1, "host:7").groups
    _step(serving, group)
    _act(serving)
    before, epochs = group.streams.copy(), serving.slots.epochs[group.slots].copy()
    types = np.array([MID, FIRST], np.uint8)
    _, restarted = serving.step(Pending(group, group.sequence, _timestep(types), 0.0))
    assert restarted == [int(group.slots[1])]
    assert serving.slots.take_cut(0) == [int(before[1])]
    assert group.streams[0] == before[0] and group.streams[1] not in before
    assert (serving.slots.epochs[group.slots] - epochs).tolist() == [0, 1]
    batch = _act(serving)
    assert batch.positions.tolist() == [1, 0]
    assert batch.streams.tolist() == group.streams.tolist()
    assert serving.ledger["discarded"] == 1


def test_a_group_that_is_told_to_reset_owes_first_rows_which_cut_nothing() -> None:
    serving = _serving(training=1, evaluation=2)
    lease = _ready(serving, 3, 1, "host:7")
    lease.minor = RESET_MINOR
    (group,) = (group for group in lease.groups if group.role == "evaluation")
    streams = group.streams.tolist()
    _step(serving, group)
    batch = serving.take(_lane(serving, "evaluation"))
    assert serving.reset([group]) == [group]
    serving.answered(batch)
    with pytest.raises(WireError, match=r"expected FIRST \(0\), got step type 1"):
        _step(serving, group, MID)
    first = _timestep(_types(group, FIRST))
    assert serving.step(Pending(group, group.sequence, first, 0.0)) == (
        _lane(serving, "evaluation"),
        [],
    )
    assert group.streams.tolist() == streams
    assert not serving.slots.take_cut(0)
    lease.minor -= 1
    assert serving.reset([group]) == []  # its env server would not know what to do


# --- queues and rules ---


def _pending(num_envs: int, arrival: float = 0.0) -> Pending:
    slots = np.zeros(num_envs, np.int32)
    lease = Lease(1, 1, "peer", 0)
    group = Group(lease, 0, slots, slots.astype(np.int64), "training", 0, b"")
    return Pending(group, 0, TimeStep((), (), (), ()), arrival)


@pytest.mark.parametrize(
    ("sizes", "now", "expected"),
    [
        ((1, 1), 10.25, 0.25),
        ((1, 1), 99.0, 0.0),  # the oldest has reached the deadline
        ((2, 2), 10.1, 0.0),  # it is large enough
    ],
)
def test_a_batch_is_due_by_size_or_deadline(
    sizes: tuple[int, int], now: float, expected: float
) -> None:
    rule = BatchRule(0.5, lambda *_: 4, list, is_complete=False)
    queue = BatchQueue(SlotRange("training", 0, 10), rule)
    for size, arrival in zip(sizes, (10.0, 10.1), strict=True):
        queue.put(_pending(size, arrival))
    assert queue.seconds_until_due(now) == expected


@pytest.mark.parametrize(
    ("num_live", "lookahead", "expected"),
    [(8, 2, 4), (7, 2, 4), (7, 1, 7), (1, 2, 1), (0, 2, 1), (0, 1, 1)],
)
def test_free_running_acts_on_a_part_of_who_is_there(
    num_live: int, lookahead: int, expected: int
) -> None:
    assert free_running(0.5).target_rows(num_live, 100, lookahead) == expected


# --- lock step: whole batches in slot order ---


def _in_lock_step() -> Serving:
    slots = SlotTable(training=4, evaluation=0, seed=0)
    return Serving(slots, page_steps=K, rule=lock_step())


def _act_all(serving: Serving, leases: list[Lease], step_type: StepType) -> Batch:
    for lease in leases:
        for group in lease.groups:
            _step(serving, group, step_type)
    batch = serving.take(serving.queues[0])
    serving.answered(batch)
    return batch


@pytest.mark.parametrize("rule", [lock_step(), rounds()], ids=["lock step", "rounds"])
def test_no_batch_waits_for_the_slot_of_a_disabled_environment(rule: BatchRule) -> None:
    serving = Serving(SlotTable(training=4, evaluation=0, seed=0), page_steps=K, rule=rule)
    whole, bad = serving.lease(2, 1, "whole"), serving.lease(1, 1, "bad")
    bad.num_disabled = 1
    (queue,) = (each for each in serving.queues if each.role == "training")
    serving.ready(whole)
    _step(serving, whole.groups[0], FIRST)
    assert queue.seconds_until_due(0.0) == math.inf  # the other one still builds its environments
    serving.ready(bad)
    assert queue.seconds_until_due(0.0) == math.inf
    _step(serving, bad.groups[0], FIRST)
    assert queue.seconds_until_due(0.0) == 0.0
    batch = serving.take(queue)
    assert batch.slots.tolist() == [0, 1, 2] and batch.positions.tolist() == [0, 0, 0]
    assert [rows.tolist() for rows in batch.rows] == [[0, 1], [2]]
    serving.answered(batch)
    # While its env server is away nothing is known of it: all four are waited for.
    serving.end(bad)
    _step(serving, whole.groups[0], MID)
    assert queue.seconds_until_due(0.0) == math.inf
    back = serving.lease(2, 1, "back")
    serving.ready(back)
    _step(serving, back.groups[0], FIRST)
    assert serving.take(queue).slots.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("rule", [lock_step(), rounds()], ids=["lock step", "rounds"])
def test_a_round_does_not_wait_for_an_env_server_that_a_failure_has_ended(rule: BatchRule) -> None:
    serving = Serving(SlotTable(training=3, evaluation=0, seed=0), page_steps=K, rule=rule)
    (queue,) = (each for each in serving.queues if each.role == "training")
    leases = [serving.lease(1, 1, peer) for peer in "abc"]
    for lease in leases:
        serving.ready(lease)
        _step(serving, lease.groups[0], FIRST)
    serving.answered(serving.take(queue))
    serving.fail(leases[1])
    serving.end(leases[1])
    for lease in (leases[0], leases[2]):
        _step(serving, lease.groups[0], MID)
    waits = rule.is_complete  # whose batches would depend on when it returns
    assert queue.seconds_until_due(0.0) == (math.inf if waits else 0.0)
    again = serving.lease(1, 1, "b")
    assert queue.seconds_until_due(0.0) == (math.inf if waits else 0.0)
    serving.ready(again)
    assert queue.seconds_until_due(0.0) == math.inf
    _step(serving, again.groups[0], FIRST)
    assert serving.take(queue).slots.tolist() == [0, 1, 2]
    # One that is lost in any other way will be back.
    serving.end(leases[2])
    assert queue.target_rows == 3


def test_slots_that_wait_for_no_others_are_groups_of_their_own() -> None:
    slots = SlotTable(training=1200, evaluation=100, seed=0)
    rule = free_running(0.0)._replace(is_separate=True)
    lease = Serving(slots, page_steps=K, rule=rule).lease(5, 2, "peer")
    assert [group.slots.tolist() for group in lease.groups] == [[0], [1], [2], [3], [1200]]
    # No more than a message can number; it need not ask again for the others.
    largest = Serving(slots, page_steps=K, rule=rule).lease(1299, 2, "peer")
    assert (len(largest.groups), largest.num_missing) == (1000, 0)


def test_rows_are_in_slot_order_whichever_group_has_them() -> None:
    serving = _in_lock_step()
    leases = [serving.lease(1, 1, peer) for peer in "abcd"]
    for number in (0, 2):
        serving.end(leases[number])
    # Slots 0 and 2 in one group, 1 and 3 in groups of their own.
    both = serving.lease(2, 1, "e")
    assert both.groups[0].slots.tolist() == [0, 2]
    batch = _act_all(serving, [leases[3], both, leases[1]], FIRST)
    assert batch.slots.tolist() == [0, 1, 2, 3]
    assert batch.streams.tolist() == [8, 5, 10, 7]
    assert [item.group.lease for item in batch.pending] == [leases[3], both, leases[1]]
    rewards = np.zeros(4)
    for item, where in zip(batch.pending, batch.rows, strict=True):
        rewards[where] = item.timestep.reward
    assert rewards.tolist() == [0, 1, 2, 3]


def test_an_env_server_lost_before_its_first_batch_leaves_no_trace() -> None:
    """It would, if its successor's environments had other seeds; later, they must have."""
    serving = _in_lock_step()
    seeds, streams = [], []
    for _ in range(2):
        lease = serving.lease(4, 2, "environments")
        for group in lease.groups:
            _step(serving, group, FIRST)
        seeds.append([seed for group in lease.groups for seed in group.seeds])
        streams.extend(stream for group in lease.groups for stream in group.streams.tolist())
        serving.end(lease)
    assert len(set(streams)) == 8  # no name may mean two of them
    _act_all(serving, [lease := serving.lease(4, 2, "environments")], FIRST)
    seeds.append([seed for group in lease.groups for seed in group.seeds])
    serving.end(lease)
    later = [group.seeds for group in serving.lease(4, 2, "environments").groups]
    assert seeds[0] == seeds[1] == seeds[2]
    assert not set(seeds[0]) & {seed for seeds in later for seed in seeds}
