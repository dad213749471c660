"""The replay's benchmark does the work that it counts."""

import math

import jax
import numpy as np
import pytest

from learner.bench import replay
from learner.bench.measure.interleave import Pace
from learner.bench.measure.result import Row
from learner.bench.rigs.bare_learner import BareLearner
from learner.bench.rigs.workloads import Subject

PAGES = 8
STEP_BYTES = 16  # of CartPole's observation


@pytest.fixture(scope="module")
def learner(tiny: Subject) -> BareLearner:
    return BareLearner(tiny, pages_per_insert=PAGES)


@pytest.fixture(scope="module")
def rows(tiny: Subject, learner: BareLearner) -> dict[str, Row]:
    # So short that each thing is done once a round: its effects can be counted.
    pace = Pace(rounds=2, seconds=1e-9)
    return {row.name: row for row in replay.rows(tiny, learner, pace)}


def test_every_figure_is_there_and_positive(rows: dict[str, Row]) -> None:
    assert list(rows) == [
        f"replay: insert {PAGES} pages",
        "replay: sample",
        "replay: sample and update",
        "replay: memory per stored step",
    ]
    for row in rows.values():
        assert math.isfinite(row.ratio.highest) and row.ratio.lowest > 0
        assert row.conditions.stride == 2 and row.conditions.window == "2 + 4 + 1"


def test_what_was_inserted_is_in_the_replay(learner: BareLearner, rows: dict[str, Row]) -> None:
    # Filled, then once to warm up and once a round.
    before = learner.num_inserted
    assert before == learner.replay.capacity_pages + PAGES + 2 * PAGES
    assert learner.insert() == PAGES
    assert learner.num_inserted == before + PAGES
    # Each page completes a sequence, and all of the pool but the youngest pages start one.
    mass = np.asarray(learner.memory.mass[0])
    assert int((mass > 0).sum()) == learner.replay.capacity_pages - 3 * PAGES
    last = jax.tree.map(
        lambda leaf: leaf[0, before % learner.replay.capacity_pages], learner.memory
    )
    np.testing.assert_array_equal(
        last.pages.steps.timestep.observation, learner.pages.steps.timestep.observation[0]
    )


def test_bytes_are_those_of_pages_and_batches(rows: dict[str, Row]) -> None:
    # An observation, reward, discount, action and version of 4 bytes each, a byte of step type, and
    # two Q-values; the LSTM's two vectors of 4 and the previous action once per page of 2 steps.
    step, carry = STEP_BYTES + 4 * 4 + 1 + 2 * 4, 2 * 4 * 4 + 4
    assert rows[f"replay: insert {PAGES} pages"].details["bytes per insertion"] == PAGES * (
        2 * step + carry
    )
    assert rows["replay: sample"].details["bytes per batch"] == 3 * (7 * step + carry)
    # Beside each page the replay keeps a link and a mass.
    memory = rows["replay: memory per stored step"]
    assert memory.ours == (step + (carry + 8) / 2,)
    assert memory.limits == (STEP_BYTES,)


def test_an_update_is_an_update(learner: BareLearner) -> None:
    before = learner.updates
    metrics = learner.learn()
    assert learner.updates == before + 1
    assert np.isfinite(metrics["loss"]) and metrics["skipped_updates"] == 0
