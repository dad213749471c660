"""Policies as distributions over actions: log-probability, entropy and draws.

Acting and the loss both call `log_probability`, so that the same parameters give the same number.
`exploration [B] float32` of 1 draws from the policy, of 0 takes its most likely action.
"""

import math
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

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
        noise = exploration[:, None] * jax.random.gumbel(key, self.logits.shape)
        return jnp.argmax(self.logits + noise, axis=-1).astype(jnp.int32)


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

        Source: Haarnoja et al. 2018b, "Soft Actor-Critic Algorithms and Applications", section 5,
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
