"""A linear actor, linear critics, a linear memory: quick to compile and to write again."""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from seedrl.networks.config import BoxNetworkConfig
from seedrl.networks.network import Network, NetworkInput
from seedrl.networks.sac import NO_MEMORY, BoxNetwork, CriticParams
from seedrl.rl.distributions import TanhGaussian
from seedrl.specs import EnvSpec
from seedrl.types import Array, Tree


@dataclass(frozen=True, kw_only=True)
class LinearConfig(BoxNetworkConfig):
    """μ and ln σ, and each critic's value, as one matrix each: no hidden layer, no bias.

    With a `memory_size` of H they see m_t = x_t I + m_(t-1) B too, where x_t is the observation,
    the previous action and the reward, both 0 on FIRST, as m_(t-1) is.
    """

    memory_size: int = 0

    def build(self, spec: EnvSpec) -> BoxNetwork:
        """For vector observations."""
        (size,), num_actions = spec.observation.shape, math.prod(spec.action.array.shape)
        seen = size + self.memory_size

        def init_actor(key: Array) -> Tree:
            return 0.4 * jax.random.normal(key, (seen, 2 * num_actions))

        def init_critics(key: Array) -> CriticParams:
            twins = 0.4 * jax.random.normal(key, (2, seen + num_actions))
            return CriticParams(memory.init(key), twins)

        def init_memory(key: Array) -> Tree:
            inputs = size + num_actions + 1
            weights = 0.4 * jax.random.normal(key, (inputs + self.memory_size, self.memory_size))
            return {"I": weights[:inputs], "B": weights[inputs:]}

        def nothing_yet(batch_size: int) -> Array:
            return jnp.zeros((batch_size, self.memory_size))

        memory = Network(init_memory, nothing_yet, _remember) if self.memory_size else NO_MEMORY
        return BoxNetwork(init_actor, init_critics, memory, _policy, _q_values)


def _remember(params: Tree, carry: Array, inputs: NetworkInput) -> tuple[Array, Array]:
    actions = inputs.previous_action.reshape(*inputs.reward.shape, -1)
    history = jnp.concatenate([actions, inputs.reward[..., None]], axis=-1)
    history = jnp.where(inputs.is_first[..., None], 0, history)
    projected = jnp.concatenate([inputs.observation, history], axis=-1) @ params["I"]

    def step(memory: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        projected_t, is_first_t = row
        memory = projected_t + jnp.where(is_first_t[:, None], 0, memory) @ params["B"]
        return memory, memory

    carry, memories = jax.lax.scan(step, carry, (projected, inputs.is_first))
    return memories, carry


def _policy(actor: Tree, memory: Tree, observation: Array) -> TanhGaussian:
    seen = jnp.concatenate([observation, *jax.tree.leaves(memory)], axis=-1)
    return TanhGaussian(*jnp.split(seen @ actor, 2, axis=-1))


def _q_values(critics: CriticParams, memory: Tree, observation: Array, action: Array) -> Array:
    seen = jnp.concatenate([observation, *jax.tree.leaves(memory), action], axis=-1)
    return critics.twins @ seen.T
