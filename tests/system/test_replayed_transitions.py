"""A stored transition that starts inside a page gives the Q-values and the priority of acting.

Of an Ape-X whose parameters and priorities never change, which stacks frames and stores no carry:
the Q-values of every transition's rows, from frames of the rows before, are as they were acted on,
and its mass is that of its n-step error, over resets, truncations and terminations, and before
and after a reconnect.
"""

import json
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
import pytest

from envs_server.envs.counting import image_of
from seedrl.agents.apex import ApexConfig
from seedrl.agents.inputs import initial_carry, inputs_of_sequence
from seedrl.config import (
    Config,
    EnvironmentConfig,
    EvaluationConfig,
    LearningConfig,
    ReplayConfig,
    ServingConfig,
)
from seedrl.networks.config import QNetworkConfig
from seedrl.rl.priorities import MIN_SAMPLING_WEIGHT
from seedrl.types import Sequence, StepType, StoredStep, Tree
from tests.system.harness import LearnerRun
from tests.system.unchanging import Unchanging

LAST = StepType.LAST
PAGE_STEPS = 8
IMAGE_SIDE = 12
IMAGE = {"image": True, "image_side": IMAGE_SIDE}


APEX = ApexConfig(
    network=QNetworkConfig(
        torso="mlp", torso_sizes=(8,), core="none", head_sizes=(), frame_stack=3
    ),
    earlier_steps=2,
    n_steps=3,
    gamma=0.9,
    exploration_base=0.9,
)
CONFIG = Config(
    environment=EnvironmentConfig(
        id="envs_server.envs.counting:make",
        arguments=json.dumps({"lengths": (2, 1, 9, 25), "num_actions": 4, **IMAGE}),
        wrappers=("gymnasium.wrappers:NormalizeReward",),
    ),
    agent=Unchanging(agent=APEX),
    serving=ServingConfig(training_slots=2, evaluation_slots=0),
    replay=ReplayConfig(
        capacity_steps=1_600, min_steps=64, page_steps=PAGE_STEPS, ratio=0.1, priority_exponent=0.6
    ),
    learning=LearningConfig(batch_sequences=4, num_devices=1),
    evaluation=EvaluationConfig(interval_seconds=0.0, episodes=1),
)


class Replayed(NamedTuple):
    """Every stored transition `[T, n]`, its place, its mass, and its Q-values now, `[T, n, A]`."""

    sequence: Sequence
    places: np.ndarray
    sampling_weight: np.ndarray
    q_values: np.ndarray


@pytest.fixture(scope="module")
def replayed(learner_run: Callable[[Config], LearnerRun]) -> Replayed:
    run = learner_run(CONFIG)
    outcome = run.run_with_a_replaced_env_server(
        2, "--allow-env", "gymnasium.wrappers*", env_steps=200
    )
    spec = run.hub.wait_for_spec(0.0)
    assert spec is not None
    network, (shard,) = APEX.network.build(spec), outcome.shards
    sequence = shard.sequences
    assert sequence.carry == ()

    @jax.jit
    def replay(params: Tree, steps: StoredStep) -> jax.Array:
        carry = initial_carry(network, len(shard.starts))
        q_values, _ = network.unroll(
            params, carry.network, inputs_of_sequence(Sequence(steps, carry))
        )
        return q_values

    q_values = replay(outcome.state.params, sequence.steps)
    return Replayed(
        sequence, shard.starts, shard.state.sampling_weight[shard.starts], np.asarray(q_values)
    )


def test_every_row_of_a_transition_gives_the_q_values_that_were_acted_on(
    replayed: Replayed,
) -> None:
    stored = replayed.sequence.steps.extras[APEX.earlier_steps :]
    found = replayed.q_values[APEX.earlier_steps :]
    np.testing.assert_allclose(found, stored, rtol=0, atol=1e-5)
    assert np.std(stored, axis=(0, 1)).min() > 1e-3
    # Without the rows before, which their frames are of, they would differ.
    assert np.abs(replayed.q_values[0] - replayed.sequence.steps.extras[0]).max() > 1e-3


def test_the_mass_of_every_transition_is_that_of_its_own_error(replayed: Replayed) -> None:
    """Recomputed in float64 from what the network says of its rows now."""
    step, q_values = replayed.sequence.steps.timestep, replayed.q_values.astype(np.float64)
    expected = np.zeros(len(replayed.sampling_weight))
    for number in range(len(expected)):
        t = first = APEX.earlier_steps
        if step.step_type[t, number] == LAST:
            expected[number] = MIN_SAMPLING_WEIGHT
            continue
        total, weight = 0.0, 1.0
        while t < first + APEX.n_steps and (t == first or step.step_type[t, number] != LAST):
            t += 1
            total += weight * float(step.reward[t, number])
            weight *= APEX.gamma * float(step.discount[t, number])
        total += weight * float(np.max(q_values[t, number]))
        error = total - q_values[first, number, replayed.sequence.steps.action[first, number]]
        expected[number] = abs(error) ** 0.6
    is_last = expected == MIN_SAMPLING_WEIGHT
    assert is_last.any()
    np.testing.assert_array_equal(
        replayed.sampling_weight[is_last], np.float32(MIN_SAMPLING_WEIGHT)
    )
    # As errors: near 0 the power makes much of what float32 rounds.
    errors, mass = (x.astype(np.float64) ** (1 / 0.6) for x in (expected, replayed.sampling_weight))
    np.testing.assert_allclose(mass[~is_last], errors[~is_last], rtol=1e-3, atol=1e-5)
    assert np.std(expected) > 0.05


def test_transitions_start_at_every_row_and_hold_ends_of_both_kinds(replayed: Replayed) -> None:
    timestep = replayed.sequence.steps.timestep
    inside = timestep.step_type[1:-1], timestep.discount[1:-1]
    seen = {
        (int(kind), int(discount)) for kind, discount in zip(*map(np.ravel, inside), strict=True)
    }
    assert seen == {(0, 1), (1, 1), (2, 0), (2, 1)}
    assert set((replayed.places % PAGE_STEPS).tolist()) == set(range(PAGE_STEPS))
    # Consecutive rows of one stream each, of the two that every training slot had.
    images = timestep.observation
    numbers = images.reshape(*images.shape[:2], -1)[..., :16].copy().view("<u4")
    np.testing.assert_array_equal(
        images[0], [image_of(number, IMAGE_SIDE) for number in numbers[0]]
    )
    streams = numbers[..., :2]
    np.testing.assert_array_equal(streams, np.broadcast_to(streams[:1], streams.shape))
    assert len({tuple(stream) for stream in streams[0]}) == 2 * 2
