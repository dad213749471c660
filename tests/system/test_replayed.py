"""A stored sequence, replayed from its stored carry, gives what acting has stored.

One run an agent, of parameters that never change, with an env server that is killed and replaced.
All that can be sampled is compared: over resets, truncations and terminations, on rows of LAST, and
before and after the reconnect.
"""

import json
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from seedrl_plugin.counting import image_of

from seedrl.agents.apex import ApexConfig
from seedrl.agents.inputs import initial_carry, inputs_of_sequence
from seedrl.agents.r2d2 import R2D2Config
from seedrl.config import (
    Config,
    EnvironmentConfig,
    LearningConfig,
    ReplayConfig,
    ServingConfig,
)
from seedrl.networks.config import QNetworkConfig
from seedrl.rl.priorities import MIN_SAMPLING_WEIGHT
from seedrl.specs import EnvSpec
from seedrl.types import Sequence, StepType, StoredStep, TimeStep, Tree
from tests.system.harness import LearnerRun, Outcome
from tests.system.unchanging import Unchanging

LENGTHS, GAMMA, IMAGE_SIDE = (2, 1, 9, 25), 0.9, 12
FIRST, LAST = StepType.FIRST, StepType.LAST
ATARI_LIKE = EnvironmentConfig(
    id="seedrl_plugin.counting:make",
    arguments=json.dumps(
        {"lengths": LENGTHS, "num_actions": 4, "image": True, "image_side": IMAGE_SIDE}
    ),
    # Rewards of tens of thousands would hide everything else.
    wrappers=("gymnasium.wrappers:NormalizeReward",),
)
Start = Callable[[Config], LearnerRun]


def _replayed(
    learner_run: Start,
    agent: Any,
    env_steps: int,
    *,
    updates: tuple[int, int] = (1, 1),
    **replay: Any,
) -> tuple[Outcome, EnvSpec]:
    """Runs `agent` on two training slots, twice for `env_steps`."""
    config = Config(
        environment=ATARI_LIKE,
        agent=agent,
        serving=ServingConfig(training_slots=2, evaluation_slots=0),
        replay=ReplayConfig(**{"capacity_steps": 2_400, "min_steps": 90, "ratio": 0.2, **replay}),
        learning=LearningConfig(batch_sequences=4, num_devices=1),
    )
    run = learner_run(config)
    outcome = run.run_with_a_replaced_env_server(
        *(2, "--allow-env", "gymnasium.wrappers*"),
        env_steps=env_steps,
        updates=updates,
    )
    spec = run.hub.wait_for_spec(0.0)
    assert spec is not None
    return outcome, spec


def _check_kinds(timestep: TimeStep) -> None:
    """Sequences begin on rows of all kinds, and hold rows and ends of all kinds inside."""
    inside = timestep.step_type[1:-1], timestep.discount[1:-1]
    seen = {(int(kind), int(end)) for kind, end in zip(*map(np.ravel, inside), strict=True)}
    assert seen == {(0, 1), (1, 1), (2, 0), (2, 1)}
    assert set(timestep.step_type[0].tolist()) == {0, 1, 2}


def _numbers(images: np.ndarray) -> np.ndarray:
    """`[..., 4]`: environment, incarnation, episode and step, which images `[..., H, W]` show."""
    octets = images.reshape(*images.shape[:-2], -1)[..., :16]
    numbers: np.ndarray = np.ascontiguousarray(octets).view("<u4")
    shown = image_of(numbers.reshape(-1, 4)[0], IMAGE_SIDE)
    np.testing.assert_array_equal(images.reshape(-1, *images.shape[-2:])[0], shown)
    return numbers


@pytest.mark.gate  # the agent: tests/seedrl/agents/test_r2d2.py; carries: test_experience.py
def test_r2d2_acts_by_the_q_values_of_the_stored_carry(learner_run: Start) -> None:
    agent = R2D2Config(
        network=QNetworkConfig(
            torso="mlp",
            torso_sizes=(8,),
            core="lstm",
            core_size=8,
            head_sizes=(),
            frame_stack=3,
        ),
        burn_in=4,
        unroll=5,
        n_steps=1,
        stride=8,  # no multiple of the unroll
        exploration_base=0.9,
    )

    def priorities(sequence: Sequence) -> jax.Array:
        """Each sequence gets its own."""
        return 1.0 + jnp.mean(jnp.abs(sequence.steps.timestep.reward), axis=0)

    outcome, spec = _replayed(
        *(learner_run, Unchanging(agent=agent, priorities=priorities), 500),
        updates=(1, 3),
        min_steps=150,
        page_steps=4,
    )
    network, sequence = agent.network.build(spec), outcome.shards[0].sequences

    @jax.jit
    def unroll(params: Tree) -> tuple[jax.Array, jax.Array]:
        """Q-values of all rows by the stored carry, and by one that is a row late."""
        inputs, carry = inputs_of_sequence(sequence), sequence.carry.network
        first = jax.tree.map(lambda leaf: leaf[:1], inputs)
        late = network.unroll(params, carry, first)[1]
        return network.unroll(params, carry, inputs)[0], network.unroll(params, late, inputs)[0]

    found, by_late_carry = map(np.asarray, unroll(outcome.state.params))
    stored, timestep = sequence.steps.extras, sequence.steps.timestep
    np.testing.assert_allclose(found, stored, rtol=0, atol=1e-4)
    # They are numbers that could differ: between rows by far more than the tolerance.
    assert np.std(stored, axis=(0, 1)).min() > 1e-2
    assert outcome.state.updates >= 3 and sequence.steps.version.max() > 0
    _check_kinds(timestep)

    # A carry that is taken late would be noticed, but where an episode begins: there it is reset.
    error = np.abs(by_late_carry - stored).max(axis=(0, 2))
    continues = timestep.step_type[0] != FIRST
    assert continues.sum() > 50
    assert (error[continues] > 1e-4).mean() > 0.95
    np.testing.assert_array_less(error[~continues], 1e-4)

    # First and later sequences of the two streams of each slot are among them.
    numbers = _numbers(timestep.observation[0])
    is_first_of_stream = (numbers[:, 2:] == 0).all(axis=1)
    streams = {tuple(number) for number in numbers[:, :2].tolist()}
    assert {tuple(number) for number in numbers[is_first_of_stream, :2].tolist()} == streams
    assert len(streams) == 2 * 2 and not is_first_of_stream.all()


@pytest.mark.gate  # its priorities: tests/seedrl/agents/test_apex.py
def test_apex_has_the_q_values_and_the_sampling_weight_of_every_transition(
    learner_run: Start,
) -> None:
    """Also of one that starts inside a page: it stacks frames, and stores no carry."""
    agent = ApexConfig(
        network=QNetworkConfig(
            torso="mlp", torso_sizes=(8,), core="none", head_sizes=(), frame_stack=3
        ),
        earlier_steps=2,
        n_steps=3,
        gamma=GAMMA,
        exploration_base=0.9,
    )
    outcome, spec = _replayed(
        *(learner_run, Unchanging(agent=agent), 200),
        page_steps=8,
        ratio=0.1,
        priority_exponent=0.6,
    )
    network, (shard,) = agent.network.build(spec), outcome.shards
    steps = shard.sequences.steps
    assert shard.sequences.carry == ()

    @jax.jit
    def replay(params: Tree, steps: StoredStep) -> jax.Array:
        carry = initial_carry(network, len(shard.starts))
        inputs = inputs_of_sequence(Sequence(steps, carry))
        return network.unroll(params, carry.network, inputs)[0]

    found, first = np.asarray(replay(outcome.state.params, steps)), agent.earlier_steps
    np.testing.assert_allclose(found[first:], steps.extras[first:], rtol=0, atol=1e-5)
    assert np.std(steps.extras, axis=(0, 1)).min() > 1e-3
    # Without the rows before, which their frames are of, they would differ.
    assert np.abs(found[0] - steps.extras[0]).max() > 1e-3
    _check_sampling_weights(
        agent, steps, found.astype(np.float64), shard.state.sampling_weight[shard.starts]
    )
    _check_kinds(steps.timestep)
    assert set((shard.starts % 8).tolist()) == set(range(8))
    # Consecutive rows of one stream each, of the two that every training slot had.
    streams = _numbers(steps.timestep.observation)[..., :2]
    np.testing.assert_array_equal(streams, np.broadcast_to(streams[:1], streams.shape))
    assert len({tuple(stream) for stream in streams[0].tolist()}) == 2 * 2


def _check_sampling_weights(
    agent: ApexConfig, steps: StoredStep, q_values: np.ndarray, weights: np.ndarray
) -> None:
    """Each is of its own n-step error, recomputed in float64."""
    step = steps.timestep
    expected = np.zeros(len(weights))
    for number in range(len(expected)):
        t = first = agent.earlier_steps
        if step.step_type[t, number] == LAST:
            expected[number] = MIN_SAMPLING_WEIGHT
            continue
        total, weight = 0.0, 1.0
        while t < first + agent.n_steps and (t == first or step.step_type[t, number] != LAST):
            t += 1
            total += weight * float(step.reward[t, number])
            weight *= agent.gamma * float(step.discount[t, number])
        total += weight * float(np.max(q_values[t, number]))
        expected[number] = abs(total - q_values[first, number, steps.action[first, number]]) ** 0.6
    is_last = expected == MIN_SAMPLING_WEIGHT
    assert is_last.any() and np.std(expected) > 0.05
    np.testing.assert_array_equal(weights[is_last], np.float32(MIN_SAMPLING_WEIGHT))
    # As errors: near 0 the power makes much of what float32 rounds.
    errors, found = (x.astype(np.float64) ** (1 / 0.6) for x in (expected, weights))
    np.testing.assert_allclose(found[~is_last], errors[~is_last], rtol=1e-3, atol=1e-5)
