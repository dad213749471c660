"""Heads: from features to the Q-values of every action, or to a policy and a value."""

from collections.abc import Sequence

import flax.linen as nn
import jax.numpy as jnp

from seedrl.networks.network import PolicyAndValue
from seedrl.networks.torsos import MLP
from seedrl.types import Array


class QHead(nn.Module):
    """Q(s, ·) through hidden layers: `[..., D]` -> `[..., A] float32`."""

    num_actions: int
    hidden_sizes: Sequence[int]
    dtype: str = "float32"

    @nn.compact
    def __call__(self, features: Array) -> Array:
        """See the class."""
        hidden = MLP(self.hidden_sizes, self.dtype, name="hidden")(features)
        return nn.Dense(self.num_actions, dtype=self.dtype, name="q")(hidden).astype(jnp.float32)


class DuelingHead(nn.Module):
    """Q(s, a) = V(s) + A(s, a) - mean_a' A(s, a'): `[..., D]` -> `[..., A] float32`.

    V and A have hidden layers of their own. The last advantage layer has no bias, as in SEED RL.

    Source: Wang et al. 2016, equation 9.
    """

    num_actions: int
    hidden_sizes: Sequence[int]
    dtype: str = "float32"

    @nn.compact
    def __call__(self, features: Array) -> Array:
        """See the class."""
        value = MLP(self.hidden_sizes, self.dtype, name="value_hidden")(features)
        value = nn.Dense(1, dtype=self.dtype, name="value")(value).astype(jnp.float32)
        advantage = MLP(self.hidden_sizes, self.dtype, name="advantage_hidden")(features)
        advantage = nn.Dense(self.num_actions, use_bias=False, dtype=self.dtype, name="advantage")(
            advantage
        ).astype(jnp.float32)
        return value + advantage - jnp.mean(advantage, axis=-1, keepdims=True)


class PolicyAndValueHead(nn.Module):
    """π(·|s) and V(s), each through hidden layers of its own: `[..., D]` -> `PolicyAndValue`.

    The last layer of the policy begins a hundredth as large as usual, so that all actions are
    almost equally likely at first (Huang et al. 2022, detail 2 of the core).
    """

    num_actions: int
    hidden_sizes: Sequence[int]
    dtype: str = "float32"

    @nn.compact
    def __call__(self, features: Array) -> PolicyAndValue:
        """See the class."""
        almost_uniform = nn.initializers.variance_scaling(1e-4, "fan_in", "truncated_normal")
        policy = MLP(self.hidden_sizes, self.dtype, name="policy_hidden")(features)
        logits = nn.Dense(
            self.num_actions, dtype=self.dtype, kernel_init=almost_uniform, name="policy"
        )(policy)
        value = MLP(self.hidden_sizes, self.dtype, name="value_hidden")(features)
        value = nn.Dense(1, dtype=self.dtype, name="value")(value)
        return PolicyAndValue(logits.astype(jnp.float32), value[..., 0].astype(jnp.float32))
