import numpy as np
import pytest

from learner.serving.batcher import Batcher, Pending
from learner.serving.leases import Group, Lease
from seedrl.types import TimeStep


def _pending(num_envs: int, *, arrival: float = 0.0, lease: Lease | None = None) -> Pending:
    slots = np.zeros(num_envs, np.int32)
    group = Group(
        lease or Lease(1, 1, "peer", 0), 0, slots, slots.astype(np.int64), "training", 0, b""
    )
    return Pending(group, 0, TimeStep((), (), (), ()), arrival)


def _batcher(max_rows: int = 10) -> Batcher:
    return Batcher(deadline_seconds=0.5, max_rows=max_rows)


def test_nothing_is_due_when_nothing_waits() -> None:
    assert _batcher().seconds_until_due(1e9, 1) is None


def test_a_batch_is_due_as_soon_as_it_is_large_enough() -> None:
    batcher = _batcher()
    batcher.put(_pending(2, arrival=10.0))
    assert batcher.seconds_until_due(10.0, 4) == 0.5
    batcher.put(_pending(2, arrival=10.1))
    assert batcher.seconds_until_due(10.1, 4) == 0.0


@pytest.mark.parametrize(("now", "expected"), [(10.0, 0.5), (10.25, 0.25), (10.5, 0.0), (99, 0.0)])
def test_a_batch_is_due_when_its_oldest_step_reaches_the_deadline(
    now: float, expected: float
) -> None:
    batcher = _batcher()
    batcher.put(_pending(1, arrival=10.0))
    batcher.put(_pending(1, arrival=10.2))
    assert batcher.seconds_until_due(now, 4) == expected


def test_a_target_beyond_the_largest_batch_is_the_largest_batch() -> None:
    batcher = _batcher(max_rows=4)
    batcher.put(_pending(4, arrival=10.0))
    assert batcher.seconds_until_due(10.0, 100) == 0.0


def test_steps_are_taken_whole_and_in_order_until_the_next_does_not_fit() -> None:
    batcher = _batcher(max_rows=6)
    steps = [_pending(size) for size in (3, 2, 2, 1)]
    for step in steps:
        batcher.put(step)
    assert [id(step) for step in batcher.take()] == [id(step) for step in steps[:2]]
    assert batcher.num_rows == 3
    assert [id(step) for step in batcher.take()] == [id(step) for step in steps[2:]]
    assert batcher.num_rows == 0
    assert batcher.take() == []


def test_the_deadline_of_what_stays_behind_goes_on_from_its_own_arrival() -> None:
    batcher = _batcher(max_rows=2)
    batcher.put(_pending(2, arrival=10.0))
    batcher.put(_pending(1, arrival=10.25))
    batcher.take()
    assert batcher.oldest_arrival == 10.25
    assert batcher.seconds_until_due(10.5, 2) == 0.25


def test_a_group_larger_than_the_largest_batch_is_a_defect() -> None:
    batcher = _batcher(max_rows=2)
    batcher.put(_pending(3))
    with pytest.raises(AssertionError, match="larger than the largest batch"):
        batcher.take()


def test_a_strike_removes_what_one_lease_has_queued_and_nothing_else() -> None:
    batcher, gone, stays = _batcher(), Lease(1, 1, "gone", 0), Lease(2, 2, "stays", 0)
    kept = [_pending(2, arrival=1.0, lease=stays), _pending(1, arrival=3.0, lease=stays)]
    for step in (
        _pending(3, arrival=0.0, lease=gone),
        kept[0],
        _pending(1, arrival=2.0, lease=gone),
        kept[1],
    ):
        batcher.put(step)
    assert batcher.strike(gone) == 4
    assert batcher.strike(gone) == 0
    assert batcher.num_rows == 3
    assert batcher.oldest_arrival == 1.0
    assert [id(step) for step in batcher.take()] == [id(step) for step in kept]
