"""The benchmark of growth, on sizes so small that each takes a second or two."""

import jax
import pytest

from learner.bench.measure.interleave import Pace
from learner.bench.rigs.bare_learner import BareLearner
from learner.bench.rigs.workloads import Workload
from seedrl.config import LaunchConfig
from tests.benchmarks import growth_of_fleet, growth_of_replay

ATTEMPTS = 3


def test_drawing_and_inserting_stand_beside_a_reading(pace: Pace) -> None:
    rows = list(growth_of_replay.of_priorities((16, 64), pace))
    names = [f"growth: {name}, priorities, 64" for name in ("drawing", "inserting")]
    assert [row.name for row in rows] == names
    assert all(row.ratio.lowest > 0 and row.limit_name == "reading all once" for row in rows)


def test_a_stored_frame_costs_its_bytes(pace: Pace) -> None:
    names = ["inserting", "sampling", "replay memory"]
    # Again if not, because the compiler's memory comes and goes in the same process.
    for _ in range(ATTEMPTS):
        rows = list(growth_of_replay.of_frames((1_600, 4_800), pace))
        if 0 < rows[-1].ours[0] < 2 * 84 * 84:
            break
    assert [row.name for row in rows] == [f"growth: {name}, stored frames, 4,800" for name in names]
    # In steps of what the allocator takes at once.
    assert 0 < rows[-1].ours[0] < 2 * 84 * 84


@pytest.mark.slow
def test_environments_bring_their_own_memory(pace: Pace) -> None:
    frames = {"shape": (84, 84), "dtype": "uint8"}
    configs = {
        size: growth_of_fleet.config(
            LaunchConfig(env_servers=1, envs_per_server=size, groups=2), frames
        )
        for size in (2, 8)
    }
    time, memory = growth_of_fleet.of_systems("environments", configs, pace)
    assert time.ratio.lowest > 0 and time.details["CPU µs of 8"] >= 0
    # 80 frames in replay, 20 in the open page, and a share of an env server's process.
    assert 100 * 84 * 84 < memory.ours[0] < 100 * 84 * 84 + 100e6 / 8


def test_a_learner_of_two_devices_fills_both_and_trains(tiny: Workload) -> None:
    learner = BareLearner(tiny, pages_per_insert=50, num_devices=2)
    learner.fill()
    assert {len(leaf.addressable_shards) for leaf in jax.tree.leaves(learner.memory)} == {2}
    capacity = learner.replay.capacity_pages
    assert learner.num_inserted == 2 * capacity
    filled = (learner.memory.mass > 0).sum(axis=1).tolist()
    assert filled[0] == filled[1] > capacity / 2
    assert learner.learn()["skipped_updates"] == 0 and learner.updates == 1
