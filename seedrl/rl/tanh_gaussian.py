"""A Gaussian squashed by tanh: a policy over real actions in [-1, 1]."""

import math
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from seedrl.types import Array


class TanhGaussian(NamedTuple):
    """The distribution of a = tanh(u), u ~ N(μ, σ²), its D numbers independent of each other.

    Attributes:
      mean: μ, `[..., D] float32`.
      log_std: ln σ, `[..., D] float32`.
    """

    mean: Array
    log_std: Array


class TanhSample(NamedTuple):
    """Actions drawn from a `TanhGaussian`.

    Attributes:
      action: tanh(u), `[..., D] float32` in [-1, 1]; u cannot be got back from it: tanh(10) is 1.
      log_probability: ln π(a), `[...] float32`, the density of `action` in [-1, 1]^D.
    """

    action: Array
    log_probability: Array


def sample(policy: TanhGaussian, key: Array) -> TanhSample:
    """Draws actions; gradients flow through them to μ and σ. Consumes the key.

    Source: Haarnoja et al. 2018b, "Soft Actor-Critic Algorithms and Applications", section 5.
    """
    noise = jax.random.normal(key, policy.mean.shape)
    pre_tanh = policy.mean + jnp.exp(policy.log_std) * noise
    return TanhSample(jnp.tanh(pre_tanh), log_probability(policy, pre_tanh))


def log_probability(policy: TanhGaussian, pre_tanh: Array) -> Array:
    """ln π(tanh(u)), summed over the D numbers of an action, `[...] float32`.

      ln π(tanh(u)) = ln N(u; μ, σ²) - ln(1 - tanh²(u))
      ln(1 - tanh²(u)) = 2 (ln 2 - u - ln(1 + e^-2u))

    The right side is finite and exact for every u; the left is -inf beyond u = 9 in float32, and
    with the usual 1e-6 inside the logarithm it is wrong by 5 at u = 10.

    Args:
      policy: μ and σ.
      pre_tanh: u, `[..., D] float32`, before tanh.

    Source: Haarnoja et al. 2018b, appendix C, equation 26.
    """
    chex.assert_equal_shape([policy.mean, policy.log_std, pre_tanh])
    standardised = (pre_tanh - policy.mean) * jnp.exp(-policy.log_std)
    gaussian = -0.5 * jnp.square(standardised) - policy.log_std - 0.5 * math.log(2 * math.pi)
    log_slope = 2 * (math.log(2) - pre_tanh - jax.nn.softplus(-2 * pre_tanh))
    return jnp.sum(gaussian - log_slope, axis=-1)
