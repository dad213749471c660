"""Heads: from features to the Q-values of every action, or to a policy and a value."""

import math
from collections.abc import Sequence

import flax.linen as nn
import jax.numpy as jnp

from seedrl.networks.network import GaussianAndValue, PolicyAndValue
from seedrl.networks.torsos import MLP
from seedrl.types import Array

# The last layer of a policy begins a hundredth as large as usual: at first all actions are almost
# equally likely, and means almost 0 (Huang et al. 2022, detail 2).
SMALL_KERNEL = nn.initializers.variance_scaling(1e-4, "fan_in", "truncated_normal")
# Those of Q-values begin a tenth as large. First values as large as the returns would be unlearned
# slowly, through the target network.
_Q_KERNEL = nn.initializers.variance_scaling(1e-2, "fan_in", "truncated_normal")


class DuelingHead(nn.Module):
    """Q(s, a) = V(s) + A(s, a) - mean_a' A(s, a'): `[..., D]` -> `[..., A] float32`.

    Source: Wang et al. 2016, equation 9.
    """

    num_actions: int
    hidden_sizes: Sequence[int]
    dtype: str = "float32"

    @nn.compact
    def __call__(self, features: Array) -> Array:
        value = MLP(self.hidden_sizes, self.dtype, name="value_hidden")(features)
        last_value = nn.Dense(1, dtype=self.dtype, kernel_init=_Q_KERNEL, name="value")
        value = last_value(value).astype(jnp.float32)
        advantage = MLP(self.hidden_sizes, self.dtype, name="advantage_hidden")(features)
        # No bias in the last layer, as in SEED RL.
        last_advantage = nn.Dense(
            self.num_actions, False, dtype=self.dtype, kernel_init=_Q_KERNEL, name="advantage"
        )
        advantage = last_advantage(advantage).astype(jnp.float32)
        # Without the mean taken off, a constant could move between V and A.
        return value + advantage - jnp.mean(advantage, axis=-1, keepdims=True)


class _ActorCriticHead(nn.Module):
    """Policy and value, each through hidden layers of its own."""

    num_outputs: int
    hidden_sizes: Sequence[int]
    dtype: str = "float32"

    def _outputs(self, features: Array) -> tuple[Array, Array]:
        # `[..., num_outputs]` of the policy and `[...]`, both float32.
        policy = MLP(self.hidden_sizes, self.dtype, name="policy_hidden")(features)
        last = nn.Dense(self.num_outputs, dtype=self.dtype, kernel_init=SMALL_KERNEL, name="policy")
        hidden = MLP(self.hidden_sizes, self.dtype, name="value_hidden")(features)
        value = nn.Dense(1, dtype=self.dtype, name="value")(hidden)[..., 0]
        return last(policy).astype(jnp.float32), value.astype(jnp.float32)


class PolicyAndValueHead(_ActorCriticHead):
    """π(·|s) and V(s): `[..., D]` -> `PolicyAndValue`."""

    @nn.compact
    def __call__(self, features: Array) -> PolicyAndValue:
        return PolicyAndValue(*self._outputs(features))


class GaussianAndValueHead(_ActorCriticHead):
    """Like `PolicyAndValueHead`, for D' real numbers: `[..., D]` -> `GaussianAndValue`.

    The std is a parameter, the same for all observations (Huang et al. 2022, detail 2 of continuous
    actions), and begins as 0.5.
    """

    @nn.compact
    def __call__(self, features: Array) -> GaussianAndValue:
        mean, value = self._outputs(features)
        first = nn.initializers.constant(math.log(0.5))
        log_std = self.param("log_std", first, (self.num_outputs,), jnp.float32)
        return GaussianAndValue(mean, jnp.broadcast_to(log_std, mean.shape), value)
