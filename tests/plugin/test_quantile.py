"""A head and a loss of one's own on R2D2: in one file, and none of the library's is changed."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from seedrl_plugin.quantile import QuantileNetworkConfig, QuantileR2D2Config, quantile_huber

from seedrl.agents.agent import AgentState
from seedrl.agents.check import check_agent
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec
from seedrl.types import Sequence, StepType, StoredStep, TimeStep

SPEC = EnvSpec(ArraySpec((2,), "float32"), DiscreteSpec(2))
CONFIG = QuantileR2D2Config(
    network=QuantileNetworkConfig(torso_sizes=(), core="lstm", core_size=4, num_quantiles=4),
    burn_in=1,
    unroll=3,
    n_steps=1,
    stride=3,
    learning_rate=0.02,
    adam_epsilon=1e-8,
    target_update_interval=10,
)


def test_quantile_regression_by_hand() -> None:
    # Levels 1/4 and 3/4. Errors of 0: 0.5 and -2; of 1: -0.5 and -3.
    loss = jax.jit(quantile_huber)(jnp.array([0.5, -2.0]), jnp.array([0.0, 1.0]))
    first = (0.25 * 0.125 + 0.75 * 1.5) / 2
    second = (0.25 * 0.125 + 0.25 * 2.5) / 2
    np.testing.assert_allclose(loss, first + second, rtol=1e-6)


@pytest.mark.gate  # the regression: above; a plugin that learns: tests/system/test_plugins.py
def test_it_keeps_the_contract_and_learns_the_spread_of_its_returns() -> None:
    """Each step ends an episode with a reward of 0 or 4 by turns: quantiles 0, 0, 4 and 4."""
    agent = CONFIG.build(SPEC)
    check_agent(agent, SPEC)
    size = 8
    types = np.array([[StepType.LAST, StepType.FIRST] * 3] * size, np.uint8).T[:5]
    reward = np.where(types == StepType.LAST, 4.0 * (np.arange(size) % 2), 0).astype(np.float32)
    discount = (types != StepType.LAST).astype(np.float32)
    timestep = TimeStep(types, reward, discount, np.ones((5, size, 2), np.float32))
    action = np.tile(np.arange(size) // 4, (5, 1)).astype(np.int32)
    steps = StoredStep(timestep, action, np.zeros_like(action), ())
    sequence = Sequence(steps, agent.initial_carry(size))

    def update(state: AgentState, _: None) -> Any:
        state, output = agent.update(state, sequence, jnp.ones(size), jax.random.key(0), _alone)
        return state._replace(updates=state.updates + 1), output.metrics["loss"]

    start = jax.jit(lambda key: agent.init_state(agent.init(key)))(jax.random.key(0))
    state, losses = jax.jit(lambda state: jax.lax.scan(update, state, length=300))(start)
    assert losses[-1] < 0.5 * losses[0]
    carry = agent.initial_carry(1)
    first = jax.tree.map(lambda leaf: leaf[1, :1], timestep)
    q_values = jax.jit(agent.act)(state.params, carry, first, jnp.zeros(1), jax.random.key(0))
    np.testing.assert_allclose(q_values.extras, [[2.0, 2.0]], atol=0.4)


def _alone(tree: Any) -> Any:
    return tree
