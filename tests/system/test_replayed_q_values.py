"""A sampled sequence, replayed from its stored carry, gives the Q-values that were acted on."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from envs_server.envs.counting import image_of
from seedrl.agents.inputs import AgentCarry
from seedrl.agents.r2d2 import R2D2Config
from seedrl.config import (
    Config,
    EnvironmentConfig,
    EvaluationConfig,
    LearningConfig,
    ReplayConfig,
    ServingConfig,
)
from seedrl.networks.config import QNetworkConfig
from seedrl.networks.network import NetworkInput
from seedrl.types import Sequence, StepType, StoredStep, Tree
from tests.system.harness import LearnerRun, Outcome
from tests.system.unchanging import Unchanging

TOLERANCE = 1e-4
LENGTHS = (2, 1, 9, 25)
IMAGE_SIDE = 12
IMAGE = {"image": True, "image_side": IMAGE_SIDE}
TRAINING_SLOTS = 2
_CHUNK = 64


def _own_priorities(sequence: Sequence) -> jax.Array:
    """Those of an update that gives each sequence its own, and compiles in no time."""
    return 1.0 + jnp.mean(jnp.abs(sequence.steps.timestep.reward), axis=0)


# Stacked images; the stride is not a multiple of the unroll. Rewards of tens of thousands would
# hide everything else from the core: they are normalised.
CONFIG = Config(
    environment=EnvironmentConfig(
        id="envs_server.envs.counting:make",
        arguments=json.dumps({"lengths": LENGTHS, "num_actions": 4, **IMAGE}),
        wrappers=("gymnasium.wrappers:NormalizeReward",),
    ),
    agent=Unchanging(
        agent=R2D2Config(
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
            stride=8,
            exploration_base=0.9,
        ),
        priorities=_own_priorities,
    ),
    serving=ServingConfig(training_slots=TRAINING_SLOTS, evaluation_slots=1),
    replay=ReplayConfig(capacity_steps=2_400, min_steps=150, page_steps=4, ratio=0.2),
    learning=LearningConfig(batch_sequences=4, num_devices=1),
    evaluation=EvaluationConfig(interval_seconds=0.0, episodes=1),
)


class Replayed(NamedTuple):
    """A finished run, its network's unroll, and every sequence that could be sampled, `[T, n]`."""

    outcome: Outcome
    unroll: Callable[..., tuple[jax.Array, Any]]
    sequence: Sequence

    def q_values(self, carry: AgentCarry) -> np.ndarray:
        """Q-values `[T, n, A]` of all rows from `carry`."""
        chunks = [
            self._unroll(*self._chunk(start, carry, self.sequence.steps))[0]
            for start in range(0, len(carry.previous_action), _CHUNK)
        ]
        return np.concatenate(chunks, axis=1)[:, : len(carry.previous_action)]

    def carry_after(self, num_rows: int) -> AgentCarry:
        """The carry `num_rows` rows later than the stored one."""
        carry = self.sequence.carry
        num_sequences = len(carry.previous_action)
        for row in range(num_rows):
            step = jax.tree.map(lambda leaf, row=row: leaf[row : row + 1], self.sequence.steps)
            chunks = [
                self._unroll(*self._chunk(start, carry, step))[1]
                for start in range(0, num_sequences, _CHUNK)
            ]
            network = jax.tree.map(lambda *parts: np.concatenate(parts)[:num_sequences], *chunks)
            carry = AgentCarry(network, step.action[0])
        return carry

    def _chunk(
        self, start: int, carry: AgentCarry, steps: StoredStep
    ) -> tuple[AgentCarry, StoredStep]:
        # Of one size, padded by the last: the program is the same in every run and can be cached.
        columns = np.minimum(np.arange(start, start + _CHUNK), len(carry.previous_action) - 1)
        return (
            jax.tree.map(lambda leaf: leaf[columns], carry),
            jax.tree.map(lambda leaf: leaf[:, columns], steps),
        )

    def _unroll(self, carry: AgentCarry, steps: StoredStep) -> tuple[np.ndarray, Tree]:
        previous_action = np.concatenate([carry.previous_action[None], steps.action[:-1]])
        inputs = NetworkInput(
            observation=steps.timestep.observation,
            previous_action=previous_action,
            reward=steps.timestep.reward,
            is_first=steps.timestep.step_type == StepType.FIRST,
        )
        return jax.tree.map(
            np.asarray, self.unroll(self.outcome.state.params, carry.network, inputs)
        )


@pytest.fixture(scope="module")
def replayed(learner_run: Callable[[Config], LearnerRun]) -> Replayed:
    allow = ("--allow-env", "gymnasium.wrappers*")
    run = learner_run(CONFIG)
    outcome = run.run_with_a_replaced_env_server(
        TRAINING_SLOTS + 1, *allow, env_steps=500, updates=(1, 3)
    )
    spec = run.hub.wait_for_spec(0.0)
    assert spec is not None
    network = CONFIG.agent.agent.network.build(spec)
    # Millions of pixels: what the suite saves by compiling in a hurry would be lost many times.
    unroll = jax.jit(network.unroll, compiler_options={"xla_backend_optimization_level": 1})
    return Replayed(outcome, unroll, outcome.shards[0].sequences)


def test_every_row_of_every_sequence_gives_the_stored_q_values(replayed: Replayed) -> None:
    q_values = replayed.q_values(replayed.sequence.carry)
    stored = replayed.sequence.steps.extras
    np.testing.assert_allclose(q_values, stored, rtol=0, atol=TOLERANCE)
    # They are numbers that could differ: between rows by far more than the tolerance.
    assert np.std(stored, axis=(0, 1)).min() > 100 * TOLERANCE
    assert len(replayed.outcome.shards[0].starts) > 80


def test_updates_were_made_meanwhile(replayed: Replayed) -> None:
    assert replayed.outcome.state.updates >= 3
    assert replayed.sequence.steps.version.max() > 0


def test_sequences_hold_resets_truncations_and_terminations_inside(replayed: Replayed) -> None:
    timestep = replayed.sequence.steps.timestep
    inside = timestep.step_type[1:-1], timestep.discount[1:-1]
    seen = {
        (int(kind), int(discount)) for kind, discount in zip(*map(np.ravel, inside), strict=True)
    }
    assert seen == {(0, 1), (1, 1), (2, 0), (2, 1)}
    # And they start on all kinds of rows.
    assert set(timestep.step_type[0]) == {0, 1, 2}


def test_first_and_later_sequences_of_streams_before_and_after_a_reconnect_are_among_them(
    replayed: Replayed,
) -> None:
    images = replayed.sequence.steps.timestep.observation[0]
    numbers = images.reshape(len(images), -1)[:, :16].copy().view("<u4")
    np.testing.assert_array_equal(images, [image_of(number, IMAGE_SIDE) for number in numbers])
    is_first_of_stream = (numbers[:, 2:] == 0).all(axis=1)
    streams = {tuple(number) for number in numbers[:, :2]}
    assert {tuple(number) for number in numbers[is_first_of_stream, :2]} == streams
    assert len(streams) == 2 * TRAINING_SLOTS  # two of each training slot
    assert not is_first_of_stream.all()


@pytest.mark.parametrize("late_rows", [1, "burn_in"])
def test_a_carry_that_is_taken_late_would_be_noticed(
    replayed: Replayed, late_rows: int | str
) -> None:
    num_rows = replayed.outcome.config.agent.agent.burn_in if late_rows == "burn_in" else 1
    q_values = replayed.q_values(replayed.carry_after(num_rows))
    error = np.abs(q_values - replayed.sequence.steps.extras).max(axis=(0, 2))
    # Where an episode begins, the carry is reset: any would do.
    continues = replayed.sequence.steps.timestep.step_type[0] != StepType.FIRST
    assert continues.sum() > 50
    assert (error[continues] > TOLERANCE).mean() > 0.95
    np.testing.assert_array_less(error[~continues], TOLERANCE)
