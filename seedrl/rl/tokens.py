"""Policies over tokens: draws, advantages within groups of sequences, the clipped objective.

Arrays of tokens are `[B, T]`; `is_counted` selects those of the policy that are trained. Their
means are `seedrl.rl.surrogate.mean_of`: over all tokens of a batch, so that each counts alike,
whatever the length of its sequence.
"""

import math
from typing import Literal

import chex
import jax
import jax.numpy as jnp

from seedrl.rl.surrogate import divergence, mean_of
from seedrl.types import Array, Tree

GroupAdvantage = Literal["grpo", "dr_grpo", "rloo"]


def sample(key: Array, logits: Array, temperature: float | Array) -> tuple[Array, Array]:
    """Draws a token a row: `[S, V] float32` -> ids `[S] int32`, their log-probabilities `[S]`.

    The log-probabilities are of the distribution that was sampled, softmax(logits / temperature):
    `log_probs` of the same arguments. `temperature` is a number or `[S] float32`, one for each row;
    0 takes the likeliest token, with log-probability 0. Consumes the key.
    """
    chex.assert_rank(logits, 2)
    chex.assert_type(logits, jnp.float32)
    temperatures = jnp.broadcast_to(jnp.asarray(temperature, jnp.float32), logits.shape[:1])
    draws = temperatures > 0
    scaled = logits / jnp.where(draws, temperatures, 1.0)[:, None]
    # The largest of logits with Gumbel noise is a draw from their softmax.
    noise = jnp.where(draws[:, None], jax.random.gumbel(key, logits.shape), 0.0)
    ids = jnp.argmax(scaled + noise, axis=-1).astype(jnp.int32)
    return ids, jnp.where(draws, log_probs(scaled, ids), 0.0)


def log_probs(logits: Array, ids: Array, temperature: float = 1.0) -> Array:
    """log softmax(logits / temperature)[id]: `[..., V] float32`, `[...] int32` -> `[...] float32`.

    `temperature` is above 0.
    """
    chex.assert_type(logits, jnp.float32)
    log_policy = jax.nn.log_softmax(logits / temperature)
    return jnp.take_along_axis(log_policy, ids[..., None], axis=-1)[..., 0]


def has_spread(returns: Array) -> Array:
    """True for groups whose returns differ: `[groups, size] float32` -> `[groups] bool`.

    The others have nothing to compare, and teach nothing. Differences below a millionth of the
    largest return are rounding.
    """
    chex.assert_rank(returns, 2)
    spread = jnp.max(returns, axis=1) - jnp.min(returns, axis=1)
    # Of a return that is not a number True: it must show in the loss.
    return ~(spread <= 1e-6 * jnp.max(jnp.abs(returns), axis=1))


def group_advantages(returns: Array, kind: GroupAdvantage) -> Array:
    """How much better each sequence is than others of its group, `[groups, size] float32`.

      "dr_grpo":  R_i - mean(R)
      "grpo":     (R_i - mean(R)) / std(R), the std of the group itself, divided by its size n
      "rloo":     R_i - the mean of the n - 1 others

    0 in groups without spread (`has_spread`).

    Source: Shao et al. 2024, section 4.1.2, https://arxiv.org/abs/2402.03300 (grpo); Liu et al.
    2025, https://arxiv.org/abs/2503.20783 (dr_grpo); Ahmadian et al. 2024, equation 6,
    https://arxiv.org/abs/2402.14740 (rloo).
    """
    chex.assert_rank(returns, 2)
    is_spread, size = has_spread(returns)[:, None], returns.shape[1]
    centred = returns - jnp.mean(returns, axis=1, keepdims=True)
    if kind == "rloo":
        # R_i - (n mean - R_i) / (n - 1).
        centred = centred * (size / (size - 1))
    if kind == "grpo":
        std = jnp.sqrt(jnp.mean(jnp.square(centred), axis=1, keepdims=True))
        centred = centred / jnp.where(is_spread, std, 1.0)
    return jnp.where(is_spread, centred, 0.0)


def token_gae(
    values: Array, is_policy: Array, returns: Array, *, gae_lambda: float
) -> tuple[Array, Array]:
    """Generalized advantage estimation over the tokens of the policy, without discount.

      δ_k = r_k + V_{k+1} - V_k,  A_k = δ_k + λ A_{k+1}

    k counts the policy's tokens only: what the environment adds between two turns is part of the
    next state. All reward comes with the last of them, after which the value is 0.

    Args:
      values: `[B, T] float32`, V of all that comes before each token.
      is_policy: `[B, T] bool`.
      returns: `[B] float32`.

    Returns advantages and the targets of V, A_k + V_k, `[B, T] float32`; 0 at other tokens.

    Source: Schulman et al. 2016, equation 16, https://arxiv.org/abs/1506.02438.
    """
    chex.assert_equal_shape([values, is_policy])

    def step(later: tuple[Array, Array], at: tuple[Array, Array]) -> tuple[Tree, Array]:
        value, counts = at
        next_value, next_advantage = later
        advantage = next_value - value + gae_lambda * next_advantage
        found = (jnp.where(counts, value, next_value), jnp.where(counts, advantage, next_advantage))
        return found, advantage

    after = (returns, jnp.zeros_like(returns))
    _, advantages = jax.lax.scan(step, after, (values.T, is_policy.T), reverse=True)
    advantages = jnp.where(is_policy, advantages.T, 0.0)
    return advantages, jnp.where(is_policy, advantages + values, 0.0)


def token_surrogate(
    log_ratios: Array, advantages: Array, *, clip_low: float, clip_high: float, ratio_cap: float
) -> Array:
    """min(r̄ A, clip(r̄, 1 - clip_low, 1 + clip_high) A), `[B, T]`, to be maximised.

    r̄ = min(r, ratio_cap), r = π / μ. The gradient flows through `log_ratios [B, T]`, log π - log μ.
    Where the cap binds its weight is `ratio_cap`, not 0: a bad token that has become far more
    likely is still pushed back. `ratio_cap` is at least `1 + clip_high`, so that it binds only
    where A < 0.

    Source: Schulman et al. 2017, equation 7, https://arxiv.org/abs/1707.06347; two bounds: Yu et
    al. 2025 (DAPO), section 3.1, https://arxiv.org/abs/2503.14476; the cap: Yao et al. 2025,
    "Your efficient RL framework secretly brings you off-policy RL training".
    """
    advantages = jax.lax.stop_gradient(advantages)
    # In logarithms: an infinite ratio times 0 is not a number.
    excess = jax.lax.stop_gradient(jnp.maximum(log_ratios - math.log(ratio_cap), 0.0))
    ratios = jnp.exp(log_ratios - excess)
    clipped = jnp.clip(ratios, 1.0 - clip_low, 1.0 + clip_high)
    return jnp.minimum(ratios * advantages, clipped * advantages)


def mismatch_kl(log_pi: Array, log_mu: Array, is_counted: Array) -> Array:
    """Estimate of KL(μ, π), `[] float32`, at least 0: the mean of r - 1 - log r, r = π / μ.

    For tokens `[B, T]` that the same parameters sampled, as μ when acting and as π when learning:
    it would be 0 in exact arithmetic. A different network or distribution shows here.
    """
    return mean_of(divergence(jnp.where(is_counted, log_pi - log_mu, 0.0)), is_counted)
