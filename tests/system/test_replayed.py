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

from seedrl.agents.inputs import inputs_of_sequence
from seedrl.agents.r2d2 import R2D2Config
from seedrl.config import (
    Config,
    EnvironmentConfig,
    LearningConfig,
    ReplayConfig,
    ServingConfig,
)
from seedrl.networks.config import QNetworkConfig
from seedrl.specs import EnvSpec
from seedrl.types import Sequence, StepType, TimeStep, Tree
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


@pytest.mark.gate  # the agent: tests/seedrl/agents/test_replaying.py; carries: test_experience.py
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
