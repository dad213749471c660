"""Heads: from features to the Q-values of every action."""

from collections.abc import Sequence

import flax.linen as nn
import jax.numpy as jnp

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
