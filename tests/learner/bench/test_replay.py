"""The replay's benchmark does the work that it counts."""

import math

import jax
import numpy as np
import pytest

from learner.bench import replay
from learner.bench.measure.interleave import Pace
from learner.bench.measure.result import Result
from learner.bench.rigs.bare_learner import BareLearner
from learner.bench.rigs.workloads import Workload

PAGES = 8
STEP_BYTES = 16  # of CartPole's observation


@pytest.fixture(scope="module")
def learner(recurrent: Workload) -> BareLearner:
    return BareLearner(recurrent, pages_per_insert=PAGES)


@pytest.fixture(scope="module")
def results(recurrent: Workload, learner: BareLearner) -> dict[str, Result]:
    # So short that each thing is done once a round: its effects can be counted.
    pace = Pace(rounds=2, seconds=1e-9)
    return {result.name: result for result in replay.results(recurrent, learner, pace)}


def test_every_figure_is_there_and_positive(results: dict[str, Result]) -> None:
    assert list(results) == [
        f"replay: insert {PAGES} pages",
        "replay: sample",
        "replay: sample and update",
        "replay: memory per stored step",
    ]
    for result in results.values():
        assert math.isfinite(result.ratio.highest) and result.ratio.lowest > 0
        assert result.conditions.stride == 2 and result.conditions.window == "2 + 4 + 1"


def test_what_was_inserted_is_in_the_replay(
    learner: BareLearner, results: dict[str, Result]
) -> None:
    # Filled, then once to warm up and once a round.
    before = learner.num_inserted
    assert before == learner.replay.capacity_pages + PAGES + 2 * PAGES
    assert learner.insert() == PAGES
    assert learner.num_inserted == before + PAGES
    # Each page completes a sequence, and all of the pool but the youngest pages start one.
    mass = np.asarray(learner.memory.mass[0])
    assert int((mass > 0).sum()) == learner.replay.capacity_pages - 3 * PAGES
    place = before % learner.replay.capacity_pages
    last = jax.tree.map(lambda leaf: np.asarray(leaf)[0, place], learner.memory)
    np.testing.assert_array_equal(
        last.pages.steps.timestep.observation, learner.pages.steps.timestep.observation[0]
    )


def test_bytes_are_those_of_pages_and_batches(results: dict[str, Result]) -> None:
    # An observation, reward, discount, action and version of 4 bytes each, a byte of step type, and
    # two Q-values; the LSTM's two vectors of 4 and the previous action once per page of 2 steps.
    step, carry = STEP_BYTES + 4 * 4 + 1 + 2 * 4, 2 * 4 * 4 + 4
    assert results[f"replay: insert {PAGES} pages"].details["bytes per insertion"] == PAGES * (
        2 * step + carry
    )
    assert results["replay: sample"].details["bytes per batch"] == 3 * (7 * step + carry)
    # Beside each page the replay keeps a link and a mass.
    memory = results["replay: memory per stored step"]
    assert memory.ours == (step + (carry + 8) / 2,)
    assert memory.limits == (STEP_BYTES,)


def test_an_update_is_an_update(learner: BareLearner) -> None:
    before = learner.updates
    metrics = learner.learn()
    assert learner.updates == before + 1
    assert np.isfinite(metrics["loss"]) and metrics["skipped_updates"] == 0
