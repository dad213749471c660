"""A stored sequence, replayed from its stored carry, gives what acting has stored.

Of a PPO with memory whose parameters never change, which acts as IMPALA does and stores values too:
the ratio of every stored step is 1, and every value as it was, over resets, truncations and
terminations, on rows of LAST, and before and after a reconnect. The sequences lie in
prioritized replay, which forgets none; that the queue mixes nothing up is shown by the simulator.
"""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedrl.agents.inputs import inputs_of_sequence
from seedrl.agents.normalization import RunningStatistics, normalization_of, normalized
from seedrl.agents.ppo import PpoConfig
from seedrl.config import (
    Config,
    EnvironmentConfig,
    EvaluationConfig,
    LearningConfig,
    ReplayConfig,
    ServingConfig,
)
from seedrl.networks.config import ActorCriticConfig
from seedrl.rl.distributions import Categorical
from seedrl.types import Sequence, StoredStep
from tests.system.harness import LearnerRun
from tests.system.unchanging import Unchanging

LENGTHS, GAMMA = (2, 1, 9, 25), 0.9
IMAGE = {"image": True, "image_side": 12}
UNITS = RunningStatistics(
    np.float32(9), np.float32(0.4), np.float32(0.25)
)  # what is seen is twice as large


def _decided(params: Any) -> Any:
    """With a policy far from uniform, as after much learning."""
    params.agent["params"]["PolicyAndValueHead_0"]["policy"]["kernel"] *= 5.0
    return params._replace(returns=UNITS)


CONFIG = Config(
    environment=EnvironmentConfig(
        id="envs_server.envs.counting:make",
        arguments=json.dumps({"lengths": LENGTHS, "num_actions": 4, **IMAGE}),
        wrappers=("gymnasium.wrappers:NormalizeReward",),
    ),
    agent=Unchanging(
        agent=PpoConfig(
            network=ActorCriticConfig(
                torso="mlp", torso_sizes=(8,), core="lstm", core_size=8, frame_stack=3
            ),
            unroll=7,
            minibatches=2,
            gamma=GAMMA,
            normalize_rewards=True,
        ),
        change=_decided,
        initial_priorities=lambda steps: jnp.ones(steps.action.shape[1]),
    ),
    serving=ServingConfig(training_slots=2, evaluation_slots=1),
    replay=ReplayConfig(capacity_steps=2_400, min_steps=150, ratio=0.2),
    learning=LearningConfig(batch_sequences=4, num_devices=1),
    evaluation=EvaluationConfig(interval_seconds=0.0, episodes=1),
)


class Replayed(NamedTuple):
    """Every stored sequence, `[T, n]`; now, log-probabilities `[T, n, A]` and values `[T, n]`.

    `taken` are those of the actions that were stored, `[T, n]`.
    """

    sequence: Sequence
    log_policy: np.ndarray
    taken: np.ndarray
    values: np.ndarray


@pytest.fixture(scope="module")
def replayed(learner_run: Callable[[Config], LearnerRun]) -> Replayed:
    allow = ("--allow-env", "gymnasium.wrappers*")
    run = learner_run(CONFIG)
    outcome = run.run_with_a_replaced_env_server(3, *allow, env_steps=300)
    spec = run.hub.wait_for_spec(0.0)
    assert spec is not None
    network = CONFIG.agent.agent.network.build(spec)
    settings, sequence = normalization_of(CONFIG.agent.agent, spec), outcome.shards[0].sequences

    @jax.jit
    def replay(params: Any, steps: StoredStep, carry: Any) -> Any:
        timestep = normalized(settings, params, steps.timestep)
        seen = Sequence(steps._replace(timestep=timestep), carry.agent)
        output, _ = network.unroll(params.agent, seen.carry.network, inputs_of_sequence(seen))
        log_policy = jax.nn.log_softmax(output.logits)
        return log_policy, Categorical(log_policy).log_probability(steps.action), output.value

    found = replay(outcome.state.params, *sequence)
    return Replayed(sequence, *jax.tree.map(np.asarray, found))


def test_the_ratio_of_every_stored_step_is_one(replayed: Replayed) -> None:
    steps = replayed.sequence.steps
    ratio = np.exp(replayed.taken - steps.extras.log_probability)
    np.testing.assert_allclose(ratio, 1, rtol=0, atol=1e-5)
    assert steps.action.shape[1] > 60
    # Numbers that differ between actions and between rows by far more.
    assert np.std(replayed.log_policy, axis=(0, 1)).min() > 1e-2
    assert np.std(replayed.log_policy, axis=-1).min() > 1e-3
    assert np.mean(replayed.log_policy.argmax(axis=-1) != steps.action) > 0.1


def test_every_stored_value_is_that_of_its_row(replayed: Replayed) -> None:
    """On LAST and bootstrap rows too: advantages are made of them."""
    np.testing.assert_allclose(replayed.sequence.steps.extras.value, replayed.values, atol=1e-5)
    assert np.std(replayed.values) > 1e-2


def test_the_rewards_so_far_are_carried_from_sequence_to_sequence(replayed: Replayed) -> None:
    """And over no end of an episode, and no cut: a stream of another seed begins with 0."""
    timestep, sums = replayed.sequence.steps.timestep, replayed.sequence.carry.discounted_sum
    octets = timestep.observation.reshape(*timestep.reward.shape, -1)[..., :16]
    places = np.ascontiguousarray(octets).view("<u4").tolist()  # environment, ..., episode, step
    rewards = {
        tuple(place): float(reward)
        for row, of_row in zip(places, timestep.reward, strict=True)
        for place, reward in zip(row, of_row, strict=True)
    }
    num_checked = 0
    for place, found in zip(places[0], sums, strict=True):
        *episode, step = place
        before = [rewards.get((*episode, earlier)) for earlier in range(1, step)]
        if step and None not in before:
            expected = sum(GAMMA**ago * r for ago, r in enumerate(reversed(before)) if r)
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
            num_checked += len(before) > 7
    assert num_checked > 10


def test_sequences_share_no_row_and_hold_resets_truncations_and_terminations(
    replayed: Replayed,
) -> None:
    timestep = replayed.sequence.steps.timestep
    inside = timestep.step_type[1:-1], timestep.discount[1:-1]
    seen = {
        (int(kind), int(discount)) for kind, discount in zip(*map(np.ravel, inside), strict=True)
    }
    assert seen == {(0, 1), (1, 1), (2, 0), (2, 1)}
    assert set(timestep.step_type[0]) == {0, 1, 2}
    observations = timestep.observation.reshape(-1, *timestep.observation.shape[2:])
    assert len(np.unique(observations, axis=0)) == len(observations)
