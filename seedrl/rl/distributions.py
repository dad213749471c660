"""Policies as distributions over actions: log-probability, entropy and draws.

Acting and the loss both call `log_probability`, so that the same parameters give the same number.
`exploration [B] float32` of 1 draws from the policy, of 0 takes its most likely action.
"""

import math
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from seedrl.rl.exploration import gumbel
from seedrl.types import Array


class Categorical(NamedTuple):
    """Discrete actions. `logits`: `[..., A] float32`, unnormalised log-probabilities."""

    logits: Array

    def log_probability(self, action: Array) -> Array:
        """log π(a): `action [...] int32` -> `[...] float32`."""
        chex.assert_type(self.logits, jnp.float32)
        log_policy = jax.nn.log_softmax(self.logits)
        return jnp.take_along_axis(log_policy, action[..., None], axis=-1)[..., 0]

    def entropy(self) -> Array:
        """-Σ π log π, `[...] float32`."""
        log_policy = jax.nn.log_softmax(self.logits)
        # Actions that a network forbids have probability 0: 0 * -inf would be NaN. NaN stays NaN.
        finite = jnp.where(log_policy == -jnp.inf, 0.0, log_policy)
        return -jnp.sum(jnp.exp(log_policy) * finite, axis=-1)

    def draw(self, exploration: Array, key: Array) -> Array:
        """Actions, `[B] int32`, of logits `[B, A]`. Consumes the key."""
        # The largest of logits with Gumbel noise is a draw from their softmax.
        noise = exploration[:, None] * gumbel(key, self.logits.shape)
        return jnp.argmax(self.logits + noise, axis=-1).astype(jnp.int32)


class MultiCategorical(NamedTuple):
    """K independent discrete actions, which share `logits`: `[..., ΣA_k] float32`, in order."""

    logits: Array
    counts: tuple[int, ...]  # A_k, static

    def log_probability(self, action: Array) -> Array:
        """Σ_k log π_k(a_k): `action [..., *shape] int32` of K elements -> `[...] float32`."""
        action = action.reshape(*self.logits.shape[:-1], len(self.counts))
        return jnp.sum(self._parts().log_probability(action), axis=-1)

    def entropy(self) -> Array:
        """That of all draws together, the sum of theirs, `[...] float32`."""
        return jnp.sum(self._parts().entropy(), axis=-1)

    def draw(self, exploration: Array, key: Array) -> Array:
        """Actions, `[B, K] int32`, of logits `[B, ΣA_k]`. Consumes the key."""
        return self._parts().draw(exploration[:, None], key)

    def _parts(self) -> Categorical:
        # As one of `[..., K, largest A_k]`: what an element has fewer has probability 0.
        parts = jnp.split(self.logits, np.cumsum(self.counts)[:-1], axis=-1)
        most, before = max(self.counts), [(0, 0)] * (self.logits.ndim - 1)
        padded = [
            jnp.pad(part, [*before, (0, most - part.shape[-1])], constant_values=-jnp.inf)
            for part in parts
        ]
        return Categorical(jnp.stack(padded, axis=-2))


class Gaussian(NamedTuple):
    """D independent real numbers, N(μ, σ²) each, not squashed."""

    mean: Array  # μ, `[..., D] float32`
    log_std: Array  # ln σ, `[..., D] float32`

    def log_probability(self, action: Array) -> Array:
        """ln N(a; μ, σ²), summed over the D numbers of `action [..., *shape]`: `[...] float32`."""
        chex.assert_type([self.mean, self.log_std, action], jnp.float32)
        action = action.reshape(self.mean.shape)
        distance = (action - self.mean) * jnp.exp(-self.log_std)
        square = 0.5 * jnp.square(distance)
        return -jnp.sum(square + self.log_std + 0.5 * math.log(2 * math.pi), axis=-1)

    def entropy(self) -> Array:
        """Differential entropy of the draws, in nats: `[...] float32`."""
        return jnp.sum(self.log_std + 0.5 * math.log(2 * math.pi * math.e), axis=-1)

    def draw(self, exploration: Array, key: Array) -> Array:
        """Actions, `[B, D] float32`. Consumes the key."""
        noise = exploration[:, None] * jax.random.normal(key, self.mean.shape)
        # Beyond [-1, 1] the nearest bound is executed, but the draw is stored: the probability of
        # an action is the density of the draw.
        return self.mean + jnp.exp(self.log_std) * noise


class TanhSample(NamedTuple):
    """Actions tanh(u), `[..., D] float32` in [-1, 1], and ln π(a), `[...] float32`."""

    action: Array
    log_probability: Array


class TanhGaussian(NamedTuple):
    """D independent real numbers in [-1, 1]: a = tanh(u), u ~ N(μ, σ²)."""

    mean: Array  # μ, `[..., D] float32`
    log_std: Array  # ln σ, `[..., D] float32`

    def sample(self, key: Array) -> TanhSample:
        """Draws actions; gradients flow through them to μ and σ. Consumes the key.

        Source: Haarnoja et al. 2018b, "Soft Actor-Critic Algorithms and Applications", equation 8,
        https://arxiv.org/abs/1812.05905.
        """
        noise = jax.random.normal(key, self.mean.shape)
        # The density is computed from u, which cannot be recovered from the action: tanh(10) is 1.
        pre_tanh = self.mean + jnp.exp(self.log_std) * noise
        return TanhSample(jnp.tanh(pre_tanh), self.log_probability(pre_tanh))

    def log_probability(self, pre_tanh: Array) -> Array:
        """ln N(u; μ, σ²) - ln(1 - tanh²(u)), summed over the D numbers u of `pre_tanh`.

        Source: Haarnoja et al. 2018b, appendix C, equation 26.
        """
        chex.assert_equal_shape([self.mean, self.log_std, pre_tanh])
        standardised = (pre_tanh - self.mean) * jnp.exp(-self.log_std)
        gaussian = -0.5 * jnp.square(standardised) - self.log_std - 0.5 * math.log(2 * math.pi)
        # ln(1 - tanh²(u)) = 2 (ln 2 - u - ln(1 + e^-2u)): the right side is finite and exact for
        # every u, the left is -inf beyond u = 9 in float32, and with the usual 1e-6 inside the
        # logarithm it is wrong by 5 at u = 10.
        log_slope = 2 * (math.log(2) - pre_tanh - jax.nn.softplus(-2 * pre_tanh))
        return jnp.sum(gaussian - log_slope, axis=-1)
