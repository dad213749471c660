"""Policies over tokens: draws, and advantages within groups of sequences.

Arrays of tokens are `[B, T]`. Objective and means are of `seedrl.rl.surrogate`: over all tokens of
a batch, so that each counts alike, whatever the length of its sequence.
"""

from typing import Literal

import chex
import jax
import jax.numpy as jnp

from seedrl.rl.distributions import Categorical
from seedrl.types import Array, Tree

GroupAdvantage = Literal["grpo", "dr_grpo", "rloo"]


def sample(key: Array, logits: Array, temperature: float | Array) -> tuple[Array, Array]:
    """Draws a token a row: `[S, V] float32` -> ids `[S] int32`, their log-probabilities `[S]`.

    The log-probabilities are of the distribution that was sampled, softmax(logits / temperature).
    `temperature` is a number or `[S] float32`, one for each row; 0 takes the likeliest token, with
    log-probability 0. Consumes the key.
    """
    chex.assert_rank(logits, 2)
    temperatures = jnp.broadcast_to(jnp.asarray(temperature, jnp.float32), logits.shape[:1])
    draws = temperatures > 0
    policy = Categorical(logits / jnp.where(draws, temperatures, 1.0)[:, None])
    # The largest of logits with Gumbel noise is a draw from their softmax.
    noise = draws[:, None] * jax.random.gumbel(key, logits.shape)
    ids = jnp.argmax(policy.logits + noise, axis=-1).astype(jnp.int32)
    return ids, jnp.where(draws, policy.log_probability(ids), 0.0)


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
    2025, https://arxiv.org/abs/2503.20783 (dr_grpo); Ahmadian et al. 2024, section 2.3,
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
