"""A linear actor and linear critics: a BoxNetwork that is quick to compile and to write again."""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from seedrl.networks.box_module import BoxNetwork
from seedrl.networks.box_network import BoxNetworkConfig
from seedrl.rl.tanh_gaussian import TanhGaussian
from seedrl.specs import EnvSpec
from seedrl.types import Array, Tree


@dataclass(frozen=True, kw_only=True)
class LinearConfig(BoxNetworkConfig):
    """μ and ln σ, and each critic's value, as one matrix each: no hidden layer, no bias."""

    def build(self, spec: EnvSpec) -> BoxNetwork:
        """For vector observations."""
        (size,), num_actions = spec.observation.shape, math.prod(spec.action.array.shape)

        def init_actor(key: Array) -> Tree:
            return 0.4 * jax.random.normal(key, (size, 2 * num_actions))

        def init_critics(key: Array) -> Tree:
            return 0.4 * jax.random.normal(key, (2, size + num_actions))

        return BoxNetwork(init_actor, init_critics, _policy, _q_values)


def _policy(actor: Tree, observation: Array) -> TanhGaussian:
    return TanhGaussian(*jnp.split(observation @ actor, 2, axis=-1))


def _q_values(critics: Tree, observation: Array, action: Array) -> Array:
    return critics @ jnp.concatenate([observation, action], axis=-1).T
