"""PPO and IMPALA with one action, several at once or a box: acting and the loss agree."""

import functools
from typing import Any

import jax
import numpy as np
import pytest

from seedrl.agents.agent import AgentState
from seedrl.agents.impala import ImpalaConfig
from seedrl.agents.ppo import PpoConfig
from seedrl.specs import ActionSpec, BoxSpec, EnvSpec, MultiDiscreteSpec
from seedrl.types import Sequence
from tests.seedrl.agents.actor_critics import (
    FIRST,
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
def test_with_unchanged_parameters_every_ratio_is_one_and_what_must_be_ignored_may_be_anything(
    name: str, action: ActionSpec
) -> None:
    agent, params = built(name, action)
    steps, carries = acted(agent, params)
    assert steps.action.shape == (ROWS, B, *action.array.shape)
    assert steps.action.dtype == action.array.dtype
    sequence = window_of((steps, carries), 2, 7)
    state, found = AgentState(params, (), (), np.int32(0)), []
    for each in (sequence, poisoned(sequence)):
        batch = agent.preprocess_batch(state, each, np.ones(B, np.float32))
        found.append(agent.update.loss(params, (), *batch, jax.random.key(0)))
    (_, output), _ = found[0]
    assert float(output.metrics["behaviour_kl"]) == pytest.approx(0, abs=1e-6)
    assert float(output.metrics["ratio_max"]) == pytest.approx(1, abs=1e-5)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(found[0]))
    jax.tree.map(np.testing.assert_array_equal, *found)


def poisoned(sequence: Sequence) -> Sequence:
    """With a reward on FIRST; on LAST and the row that bootstraps another action, of probability 0.

    What follows a LAST row is FIRST, where the previous action is not seen.
    """
    steps, timestep = sequence.steps, sequence.steps.timestep
    ignored = timestep.step_type == LAST
    ignored[-1] = True
    rows = ignored.reshape(*ignored.shape, *[1] * (steps.action.ndim - 2))
    action = np.where(rows, 0, steps.action).astype(steps.action.dtype)
    assert ignored[:-1].any() and (action != steps.action).any()
    log_probability, *others = jax.tree.leaves(steps.extras)
    extras = [np.where(ignored, np.float32(-800), log_probability), *others]
    steps = steps._replace(
        timestep=timestep._replace(
            reward=np.where(timestep.step_type == FIRST, 1e9, timestep.reward)
        ),
        action=action,
        extras=jax.tree.unflatten(jax.tree.structure(steps.extras), extras),
    )
    return sequence._replace(steps=steps)


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
