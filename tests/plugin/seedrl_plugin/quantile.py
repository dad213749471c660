"""R2D2 that learns N quantiles of the return: a head and a loss of its own, the rest is R2D2's."""

import dataclasses
import functools
from dataclasses import dataclass, field
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from seedrl.agents.agent import Agent
from seedrl.agents.check import build_network
from seedrl.agents.gradient_update import LossOutput
from seedrl.agents.inputs import unrolled_after_burn_in
from seedrl.agents.r2d2 import R2D2Config
from seedrl.networks.build import from_config
from seedrl.networks.config import QNetworkConfig
from seedrl.networks.network import Network
from seedrl.rl.priorities import sequence_priority
from seedrl.rl.returns import n_step_targets
from seedrl.specs import EnvSpec
from seedrl.types import Array, Sequence, StepType, Tree


class QuantileHead(nn.Module):
    """Features `[..., D]` -> N quantiles of each action's return, `[..., A, N] float32`."""

    num_actions: int
    num_quantiles: int

    @nn.compact
    def __call__(self, features: Array) -> Array:
        """See the class."""
        numbers = nn.Dense(self.num_actions * self.num_quantiles)(features)
        return numbers.reshape(*numbers.shape[:-1], self.num_actions, self.num_quantiles)


@dataclass(frozen=True, kw_only=True)
class QuantileNetworkConfig(QNetworkConfig):
    """Torso and core of a Q-network, with that head.

    Attributes:
      num_quantiles: N.
    """

    num_quantiles: int = 8

    def build(self, spec: EnvSpec) -> Network:
        """Its `unroll` gives `[T, B, A, N]`."""
        head = functools.partial(QuantileHead, spec.action.num_actions, self.num_quantiles)
        return from_config(self, spec, head=head)


@dataclass(frozen=True, kw_only=True)
class QuantileR2D2Config(R2D2Config):
    """R2D2 by quantile regression (Dabney et al. 2018, QR-DQN)."""

    network: Any = field(default_factory=QuantileNetworkConfig)
    value_scaling: bool = False

    def build(self, spec: EnvSpec) -> Agent:
        """R2D2's agent, of the means of the quantiles, with another loss."""
        shape = (spec.action.num_actions, self.network.num_quantiles)
        network = build_network(self.network, spec, jax.ShapeDtypeStruct(shape, jnp.float32))
        # R2D2 acts on the means, and makes target, optimizer, exploration and initial priorities.
        agent = R2D2Config.build(dataclasses.replace(self, network=Means(network)), spec)
        loss = functools.partial(_loss, self, network)
        return agent._replace(update=agent.update._replace(loss=loss))


@dataclass(frozen=True)
class Means:
    """A config whose network gives the means of the quantiles, which are Q-values."""

    network: Network

    def build(self, spec: EnvSpec) -> Network:
        """Of the same parameters and recurrent state."""

        def unroll(params: Tree, carry: Tree, inputs: Any) -> tuple[Array, Tree]:
            quantiles, carry = self.network.unroll(params, carry, inputs)
            return jnp.mean(quantiles, axis=-1), carry

        return self.network._replace(unroll=unroll)


def quantile_huber(targets: Array, predictions: Array) -> Array:
    """Σ_i mean_j |τ_i - 1{δ_ij < 0}| L(δ_ij): `[..., N]` twice -> `[...]`.

    δ_ij = target_j - prediction_i, τ_i = (i - 1/2) / N, and L is the Huber loss of threshold 1
    (Dabney et al. 2018, equation 10).
    """
    num_quantiles = predictions.shape[-1]
    levels = (jnp.arange(num_quantiles) + 0.5) / num_quantiles
    errors = targets[..., None, :] - predictions[..., :, None]
    huber = jnp.where(jnp.abs(errors) <= 1, 0.5 * jnp.square(errors), jnp.abs(errors) - 0.5)
    levels = jnp.expand_dims(levels[:, None], range(errors.ndim - 2))
    weights = jnp.abs(levels - (errors < 0))
    return jnp.sum(jnp.mean(weights * huber, axis=-1), axis=-1)


def _loss(
    config: QuantileR2D2Config,
    network: Network,
    params: Tree,
    target: Tree,
    sequence: Sequence,
    weights: Array,
    key: Array,
) -> tuple[Array, LossOutput]:
    online = unrolled_after_burn_in(network, config.burn_in, params, sequence)
    older = unrolled_after_burn_in(network, config.burn_in, target, sequence)
    steps = jax.tree.map(lambda leaf: leaf[config.burn_in :], sequence.steps)
    # Double Q-learning: the online means choose, the target's quantiles are bootstrapped from.
    best = jnp.argmax(jnp.mean(online, axis=-1), axis=-1)
    values = jnp.take_along_axis(older, best[..., None, None], axis=2)[:, :, 0]
    returns_of = functools.partial(
        n_step_targets, steps.timestep, n_steps=config.n_steps, gamma=config.gamma
    )
    targets = jax.lax.stop_gradient(jax.vmap(returns_of, in_axes=-1, out_axes=-1)(values))
    rows = slice(0, config.unroll)
    taken = jnp.take_along_axis(online, steps.action[..., None, None], axis=2)[rows, :, 0]
    is_trained = steps.timestep.step_type[rows] != StepType.LAST
    losses = jnp.where(is_trained, quantile_huber(targets, taken), 0.0)
    errors = jnp.mean(targets, axis=-1) - jnp.mean(taken, axis=-1)
    priorities = jax.lax.stop_gradient(sequence_priority(errors, is_trained))
    loss = jnp.mean(weights * jnp.sum(losses, axis=0))
    return loss, LossOutput(priorities, {"q_mean": jnp.mean(online)})
