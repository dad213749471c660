"""The benchmark of inference acts on what it says, in every batch shape."""

import math

import numpy as np

from learner.bench import inference
from learner.bench.inference import make_batch
from learner.bench.measure.interleave import Pace
from learner.bench.rigs.bare_actor import BareActor
from learner.bench.rigs.bare_forward import bare_forward
from learner.bench.rigs.workloads import Subject


def test_there_is_a_row_for_each_batch_shape(tiny: Subject, pace: Pace) -> None:
    rows = list(inference.rows(tiny, pace))
    assert [row.name for row in rows] == [
        f"inference: CartPole, batch of {size}" for size in (1, 2, 4)
    ]
    for row in rows:
        assert math.isfinite(row.ratio.highest) and row.ratio.lowest > 0
        assert row.details["of which staging"] < row.details["µs of a batch"]
        assert "lstm 4" in row.conditions.network


def test_acting_writes_what_it_saw_into_the_open_page(tiny: Subject) -> None:
    actor = BareActor(tiny, tiny.config.serving)
    actions = [actor.act(make_batch(tiny, 3)) for _ in range(2)]
    pages = actor.pages()
    for position, action in enumerate(actions):
        assert action.shape == (3,)
        np.testing.assert_array_equal(pages.steps.action[:3, position], action)
    np.testing.assert_array_equal(pages.steps.timestep.observation[:3], 1.0)
    # The fourth slot took no part.
    np.testing.assert_array_equal(pages.steps.timestep.observation[3], 0.0)


def test_the_bare_network_sees_the_whole_batch(tiny: Subject) -> None:
    assert bare_forward(tiny, 5)() == 5
