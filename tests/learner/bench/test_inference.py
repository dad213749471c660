"""The benchmark of inference acts on what it says, in every batch shape."""

import math

import numpy as np

from learner.bench import inference
from learner.bench.inference import make_batch
from learner.bench.measure.interleave import Pace
from learner.bench.rigs.bare_actor import BareActor
from learner.bench.rigs.bare_forward import bare_forward
from learner.bench.rigs.workloads import Workload


def test_there_is_a_result_for_each_batch_shape(recurrent: Workload, pace: Pace) -> None:
    results = list(inference.results(recurrent, pace))
    assert [result.name for result in results] == [
        f"inference: CartPole, batch of {size}" for size in (1, 2, 4)
    ]
    for result in results:
        assert math.isfinite(result.ratio.highest) and result.ratio.lowest > 0
        assert result.details["of which staging"] < result.details["µs of a batch"]
        assert "lstm 4" in result.conditions.network


def test_acting_writes_what_it_saw_into_the_open_page(recurrent: Workload) -> None:
    actor = BareActor(recurrent, recurrent.config.serving)
    actions = [actor.act(make_batch(recurrent, 3)) for _ in range(2)]
    pages = actor.pages()
    for position, action in enumerate(actions):
        assert action.shape == (3,)
        np.testing.assert_array_equal(pages.steps.action[:3, position], action)
    np.testing.assert_array_equal(pages.steps.timestep.observation[:3], 1.0)
    # The fourth slot took no part.
    np.testing.assert_array_equal(pages.steps.timestep.observation[3], 0.0)


def test_the_bare_network_sees_the_whole_batch(recurrent: Workload) -> None:
    assert bare_forward(recurrent, 5)() == 5
