"""PPO and IMPALA with several actions at once or a box: acting and the loss agree."""

import functools
from typing import Any

import jax
import numpy as np
import pytest

from seedrl.agents.agent import AgentState
from seedrl.agents.impala import ImpalaConfig
from seedrl.agents.ppo import PpoConfig
from seedrl.specs import ActionSpec, BoxSpec, EnvSpec, MultiDiscreteSpec
from tests.seedrl.agents.actor_critics import (
    LAST,
    NETWORK,
    ROWS,
    SPEC,
    B,
    acted,
    jitted,
    random_timesteps,
    window_of,
)

SEVERAL = MultiDiscreteSpec((2, 2), (3, 1, 4, 2))
UNBOUNDED = BoxSpec((2,), (-np.inf, 0.0), (np.inf, 5.0))
AGENTS = {
    "ppo": PpoConfig(network=NETWORK, unroll=6),
    "impala": ImpalaConfig(network=NETWORK, unroll=6),
}
# PPO's real actions: test_ppo.py. Both agents take the same distributions.
KINDS = [("ppo", SEVERAL), ("impala", UNBOUNDED)]


@functools.cache
def built(name: str, action: ActionSpec) -> Any:
    return jitted(AGENTS[name].build(EnvSpec(SPEC.observation, action)))


@pytest.mark.parametrize(
    ("name", "action"), [KINDS[0], pytest.param(*KINDS[1], marks=pytest.mark.gate)]
)
def test_with_unchanged_parameters_every_ratio_is_one_and_ignored_actions_count_nowhere(
    name: str, action: ActionSpec
) -> None:
    agent, params = built(name, action)
    steps, carries = acted(agent, params)
    assert steps.action.shape == (ROWS, B, *action.array.shape)
    assert steps.action.dtype == action.array.dtype
    losses = []
    for changed in (False, True):
        sequence = window_of((steps, carries), 2, 7)
        if changed:  # to another action: of the row that bootstraps, and of LAST rows
            ignored = sequence.steps.timestep.step_type == LAST
            ignored[-1] = True
            ignored = ignored.reshape(*ignored.shape, *[1] * len(action.array.shape))
            others = np.where(ignored, 0, sequence.steps.action).astype(action.array.dtype)
            assert (others != sequence.steps.action).any()
            # What follows a LAST row is FIRST, where the previous action is not seen.
            sequence = sequence._replace(steps=sequence.steps._replace(action=others))
        state = AgentState(params, (), (), np.int32(0))
        batch = agent.preprocess_batch(state, sequence, np.ones(B, np.float32))
        (loss, output), gradient = agent.update.loss(params, (), *batch, jax.random.key(0))
        losses.append(float(loss))
        assert float(output.metrics["behaviour_kl"]) == pytest.approx(0, abs=1e-6)
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((loss, gradient)))
        if not changed:
            assert float(output.metrics["ratio_max"]) == pytest.approx(1, abs=1e-5)
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.parametrize(("name", "action"), KINDS)
def test_without_exploration_the_action_is_the_likeliest(name: str, action: ActionSpec) -> None:
    agent, params = built(name, action)
    timestep = jax.tree.map(lambda leaf: leaf[2], random_timesteps())
    arguments = (params, agent.initial_carry(B), timestep)
    drawn = [
        agent.act(*arguments, np.full(B, share, np.float32), jax.random.key(seed))
        for seed, share in enumerate((0, 0, 1, 1, 1, 1))
    ]
    logs = [np.asarray(jax.tree.leaves(output.extras)[0]) for output in drawn]
    np.testing.assert_array_equal(drawn[0].action, drawn[1].action)
    assert all((logs[0] >= other - 1e-6).all() for other in logs)
    assert len({np.asarray(output.action).tobytes() for output in drawn}) == 5
