"""The benchmark of inference acts on what it says, in every batch shape."""

import dataclasses
import math

import numpy as np
import pytest

from learner.bench import inference
from learner.bench.inference import make_batch
from learner.bench.measure.interleave import Pace
from learner.bench.rigs.bare_actor import BareActor
from learner.bench.rigs.bare_forward import bare_forward
from learner.bench.rigs.workloads import Workload
from seedrl.config import ServingConfig


@pytest.fixture(scope="module")
def workload(recurrent: Workload) -> Workload:
    """Of two slots, so that there are two batch shapes to compile."""
    serving = ServingConfig(training_slots=2, evaluation_slots=0)
    return dataclasses.replace(
        recurrent, config=dataclasses.replace(recurrent.config, serving=serving)
    )


def test_there_is_a_result_for_each_batch_shape(workload: Workload, pace: Pace) -> None:
    results = list(inference.results(workload, pace))
    assert [result.name for result in results] == [
        f"inference: CartPole, batch of {size}" for size in (1, 2)
    ]
    for result in results:
        assert math.isfinite(result.ratio.highest) and result.ratio.lowest > 0
        assert result.details["of which staging"] < result.details["µs of a batch"]
        assert "lstm 4" in result.conditions.network


def test_acting_writes_what_it_saw_into_the_open_page(workload: Workload) -> None:
    actor = BareActor(workload, workload.config.serving)
    actions = [actor.act(make_batch(workload, 1)) for _ in range(2)]
    pages = actor.pages()
    for position, action in enumerate(actions):
        assert action.shape == (1,)
        np.testing.assert_array_equal(pages.steps.action[:1, position], action)
    np.testing.assert_array_equal(pages.steps.timestep.observation[:1, :2], 1.0)
    # The second slot took no part.
    np.testing.assert_array_equal(pages.steps.timestep.observation[1], 0.0)


def test_the_bare_network_sees_the_whole_batch(workload: Workload) -> None:
    assert bare_forward(workload, 2)() == 2
