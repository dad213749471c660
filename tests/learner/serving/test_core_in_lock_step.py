"""The serving core in lock step: whole batches in slot order, and streams that resume."""

import json

import numpy as np
import pytest

from learner.serving.batching import Pending, lock_step
from learner.serving.core import Batch, Serving, first_row
from learner.serving.leases import Group, Lease, PlaybackError, SlotTable
from learner.serving.ledger import ALWAYS, residues
from seedrl.types import StepType, TimeStep

K = 3  # steps of a page
FIRST, MID, LAST = StepType


def _serving(training: int = 4) -> Serving:
    slots = SlotTable(training=training, evaluation=0, seed=0)
    return Serving(slots, page_steps=K, rule=lock_step())


def _play(serving: Serving, num_envs: int = 4, num_groups: int = 1) -> Lease:
    return serving.lease(num_envs, num_groups, "player", resumed_at=first_row(serving))


def _step(serving: Serving, group: Group, step_type: StepType) -> None:
    """Rows carry their slots as rewards."""
    size = len(group.slots)
    types = np.full(size, step_type, np.uint8)
    timestep = TimeStep(types, group.slots.astype(np.float32), np.ones(size), ())
    serving.step(Pending(group, group.sequence, timestep, 0.0))


def _act(serving: Serving, leases: list[Lease], step_type: StepType) -> Batch:
    for lease in leases:
        for group in lease.groups:
            _step(serving, group, step_type)
    batch = serving.take(serving.lanes[0])
    serving.answered(batch)
    return batch


def _resumed(serving: Serving) -> Serving:
    """What a checkpoint brings back, through its JSON."""
    resumed = _serving(serving.slots.num_slots)
    resumed.restore(json.loads(json.dumps(serving.state())))
    return resumed


def _check(serving: Serving) -> None:
    assert residues(serving.accounts(), ALWAYS) == []


def test_rows_are_in_slot_order_whichever_group_has_them() -> None:
    serving = _serving()
    leases = [serving.lease(1, 1, peer) for peer in "abcd"]
    for number in (0, 2):
        serving.end(leases[number])
    # Slots 0 and 2 in one group, 1 and 3 in groups of their own.
    both = serving.lease(2, 1, "e")
    assert both.groups[0].slots.tolist() == [0, 2]
    batch = _act(serving, [leases[3], both, leases[1]], FIRST)
    assert batch.slots.tolist() == [0, 1, 2, 3]
    assert batch.streams.tolist() == [8, 5, 10, 7]
    assert [item.group.lease for item in batch.pending] == [leases[3], both, leases[1]]
    rewards = np.zeros(4)
    for item, where in zip(batch.pending, batch.rows, strict=True):
        rewards[where] = item.timestep.reward
    assert rewards.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("num_rows", [1, 2, 3, 4])
def test_streams_resume_under_a_recording_where_the_checkpoint_has_them(num_rows: int) -> None:
    serving = _serving()
    lease = _play(serving)
    assert lease.resumed_at == 0
    before = [_act(serving, [lease], FIRST if row == 0 else MID) for row in range(num_rows)]
    resumed = _resumed(serving)
    again = _play(resumed, num_groups=3)
    assert again.resumed_at == num_rows
    assert resumed.ledger["restored"] == 4 * (num_rows % K)
    _check(resumed)
    for row in range(num_rows, 2 * K):
        batch = _act(resumed, [again], MID)
        assert batch.positions.tolist() == [row % K] * 4
        assert batch.streams.tolist() == before[0].streams.tolist()
        _check(resumed)
    assert resumed.slots.cut == []
    assert resumed.slots.epochs.tolist() == [1] * 4


def test_environments_cut_the_streams_of_a_checkpoint() -> None:
    serving = _serving()
    before = _act(serving, [_play(serving)], FIRST)
    resumed = _resumed(serving)
    lease = resumed.lease(4, 2, "environments")
    assert lease.resumed_at is None
    assert resumed.slots.cut == before.streams.tolist()
    assert resumed.slots.epochs.tolist() == [2] * 4
    batch = _act(resumed, [lease], FIRST)
    assert (batch.positions.tolist(), batch.number) == ([0] * 4, 1)
    assert resumed.ledger["restored"] == 0
    _check(resumed)


def test_an_env_server_lost_before_its_first_batch_leaves_no_trace() -> None:
    """It would, if its successor's environments had other seeds; later, they must have."""
    serving = _serving()
    seeds, streams = [], []
    for _ in range(2):
        lease = serving.lease(4, 2, "environments")
        for group in lease.groups:
            _step(serving, group, FIRST)
        seeds.append([seed for group in lease.groups for seed in group.seeds])
        streams.extend(stream for group in lease.groups for stream in group.streams.tolist())
        serving.end(lease)
    assert len(set(streams)) == 8  # no name may mean two of them
    _act(serving, [lease := serving.lease(4, 2, "environments")], FIRST)
    seeds.append([seed for group in lease.groups for seed in group.seeds])
    serving.end(lease)
    later = [group.seeds for group in serving.lease(4, 2, "environments").groups]
    assert seeds[0] == seeds[1] == seeds[2]
    assert not set(seeds[0]) & {seed for seeds in later for seed in seeds}


def test_a_recording_is_not_played_to_a_stream_that_was_cut() -> None:
    serving = _serving()
    stays = _play(serving, num_envs=3)
    lost = serving.lease(1, 1, "environments")
    _act(serving, [stays, lost], FIRST)
    serving.end(lost)
    with pytest.raises(PlaybackError):
        _play(serving, num_envs=1)
    assert serving.slots.num_free == 1
    # Nor to what began again in the middle of the run, even if a checkpoint lies between.
    _step(serving, serving.lease(1, 1, "environments").groups[0], FIRST)
    _act(serving, [stays], MID)
    with pytest.raises(PlaybackError):
        _play(_resumed(serving))
