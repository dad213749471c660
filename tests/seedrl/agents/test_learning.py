"""Each agent learns a task of one step: the action that the observation names is paid for.

SAC: test_sac.py, the value of twins. GRPO: test_grpo.py, to copy.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedrl.agents.agent import AgentState
from seedrl.agents.apex import ApexConfig
from seedrl.agents.impala import ImpalaConfig
from seedrl.agents.ppo import PpoConfig
from seedrl.agents.r2d2 import R2D2Config
from seedrl.networks.config import ActorCriticConfig, QNetworkConfig
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec
from seedrl.types import Sequence, StepType, StoredStep, TimeStep
from tests.gated import all_but

SPEC = EnvSpec(ArraySpec((3,), "float32"), DiscreteSpec(3))
B, UPDATES = 16, 60
_SIZES: dict[str, Any] = {"torso": "mlp", "core": "none", "head_sizes": (), "frame_stack": 1}
_Q = QNetworkConfig(**_SIZES, torso_sizes=(8,))
_POLICY = ActorCriticConfig(**_SIZES, torso_sizes=(8,))
AGENTS: dict[str, Any] = {
    "R2D2": R2D2Config(network=_Q, burn_in=0, unroll=4, n_steps=1, stride=4, learning_rate=0.03),
    "Ape-X": ApexConfig(network=_Q, n_steps=1, learning_rate=0.03),
    "IMPALA": ImpalaConfig(network=_POLICY, unroll=4, learning_rate=0.03),
    "PPO": PpoConfig(network=_POLICY, unroll=4, learning_rate=0.03),
}


# Values and a policy are learned; each agent's gradient is compared in its own file.
@pytest.mark.parametrize("name", all_but(["R2D2", "PPO"], AGENTS))
def test_an_agent_learns_to_do_what_it_is_shown(name: str) -> None:
    agent = AGENTS[name].build(SPEC)
    exploration = np.asarray(agent.exploration(B), np.float32)
    kinds = np.where(np.arange(agent.window.length) % 2, StepType.LAST, StepType.FIRST)

    def played(params: Any, key: jax.Array) -> tuple[Sequence, jax.Array]:
        """Episodes of one step, and which of all actions were right."""

        def row(before: Any, drawn: Any) -> Any:
            (carry, reward), (kind, shown, own) = before, drawn
            is_last = kind == StepType.LAST
            timestep = TimeStep(
                jnp.full(B, kind, jnp.uint8),
                jnp.where(is_last, reward, 0.0),
                jnp.full(B, jnp.where(is_last, 0.0, 1.0)),
                jax.nn.one_hot(shown, 3),
            )
            action, carry, extras = agent.act(params, carry, timestep, exploration, own)
            right = (action == shown).astype(jnp.float32)
            version = jnp.zeros(B, jnp.int32)
            return (carry, right), (StoredStep(timestep, action, version, extras), right)

        start = agent.initial_carry(B)
        shown = jax.random.randint(key, (len(kinds), B), 0, 3)
        keys = jax.random.split(key, len(kinds))
        _, (steps, right) = jax.lax.scan(
            row, (start, jnp.zeros(B)), (kinds.astype(np.uint8), shown, keys)
        )
        return Sequence(steps, agent.stored_carry(start)), right[kinds == StepType.FIRST].mean()

    def update(state: AgentState, key: jax.Array) -> tuple[AgentState, jax.Array]:
        sequence, right = played(agent.actor_params(state.params), key)
        batch = agent.preprocess_batch(state, sequence, jnp.ones(B))
        return agent.update(state, *batch, key, mean=lambda tree: tree)[0], right

    @jax.jit
    def learned(key: jax.Array) -> jax.Array:
        first, *keys = jax.random.split(key, UPDATES + 1)
        return jax.lax.scan(update, agent.init_state(agent.init(first)), jnp.stack(keys))[1]

    right = learned(jax.random.key(1))
    assert float(right[:2].mean()) < 0.6 and float(right[-5:].mean()) > 0.85
