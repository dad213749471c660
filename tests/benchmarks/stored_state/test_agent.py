"""Each carry, of a network that adds up its rewards: worked by hand."""

import jax
import numpy as np
import pytest

from seedrl.agents.inputs import AgentCarry
from seedrl.networks.network import Network, NetworkInput
from seedrl.types import Sequence, StepType, StoredStep, TimeStep, Tree
from tests.benchmarks.stored_state.agent import exact, late, zero

_BURN_IN = 3


def _unroll(params: Tree, carry: Tree, inputs: NetworkInput) -> tuple[Tree, Tree]:
    for reward, is_first in zip(inputs.reward, inputs.is_first, strict=True):
        carry = params * reward + np.where(is_first, 0.0, carry)
    return (), carry


_NETWORK = Network(lambda key: 1.0, lambda size: np.zeros(size), _unroll)


def _sequence() -> Sequence:
    # Two sequences of six rows; the second sequence has an episode's start in its burn-in.
    step_type = np.full((6, 2), StepType.MID, np.int32)
    step_type[1, 1] = StepType.FIRST
    reward = np.array([[1, 1], [2, 2], [4, 4], [8, 8], [16, 16], [32, 32]], np.float32)
    timestep = TimeStep(observation=reward, reward=reward, discount=reward, step_type=step_type)
    steps = StoredStep(timestep=timestep, action=np.zeros((6, 2), np.int32), version=(), extras=())
    carry = AgentCarry(np.array([100.0, 200.0]), np.zeros(2, np.int32))
    return Sequence(carry=carry, steps=steps)


@pytest.mark.parametrize(
    ("start", "expected"),
    [(exact, [100.0, 200.0]), (zero, [0.0, 0.0]), (late, [107.0, 6.0])],
    ids=["exact", "zero", "late"],
)
def test_each_carry_is_the_one_that_its_name_says(start: object, expected: list[float]) -> None:
    carry = start(_NETWORK, _BURN_IN, 1.0, _sequence())  # type: ignore[operator]

    np.testing.assert_array_equal(jax.tree.leaves(carry)[0], expected)
