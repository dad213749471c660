"""Rewards as they are learned from, and n-step returns over experience."""

import chex
import jax.numpy as jnp

from seedrl.types import Array, StepType, TimeStep


def scaled(reward: Array, scale: float, limit: float) -> Array:
    """`reward` times `scale`, clipped to plus or minus `limit`; a limit of 0 clips nothing."""
    product = scale * reward  # before the clip, which is of learned rewards
    return jnp.clip(product, -limit, limit) if limit else product


def steps_to_bootstrap(step_type: Array, *, n_steps: int) -> Array:
    """Time steps from the first of `step_type [T, B]` to the one that its return bootstraps from.

    `[B] int32`, 1 to n: to the first LAST, at most n; meaningless where the first is LAST itself. T
    is at least n + 1.
    """
    chex.assert_rank(step_type, 2)
    assert 1 <= n_steps < step_type.shape[0], (n_steps, step_type.shape)
    no_later = jnp.ones_like(step_type[:1], dtype=bool)
    is_end = jnp.concatenate([step_type[1:n_steps] == StepType.LAST, no_later])
    return 1 + jnp.argmax(is_end, axis=0).astype(jnp.int32)


def n_step_targets(
    timesteps: TimeStep, bootstrap_values: Array, *, n_steps: int, gamma: float
) -> Array:
    """Bootstrapped n-step returns that stop at the end of an episode.

    Time step t holds what arrived with observation t: its reward and discount are consequences of
    the action of t - 1. With V the bootstrap values,

      G⁰_t = V_t
      Gᵏ_t = r_{t+1} + γ d_{t+1} · (V_{t+1} if t+1 is LAST else Gᵏ⁻¹_{t+1})

    so a sum ends at LAST, with V of the true last observation if the episode was truncated (d = 1)
    and with nothing if it terminated (d = 0).

    `timesteps` and V are `[T, B]`, 1 ≤ n < T, γ is 0 to 1; no observation is looked at. The result
    is Gⁿ, `[T - n, B] float32`, of the first T - n time steps. Of a LAST one it is meaningless,
    because the action taken there was ignored: callers mask it.

    Source: Sutton and Barto 2018, equation 7.1; Kapturowski et al. 2019, section 2.3. Where SEED RL
    shortens the last n - 1 returns of a sequence, we ask for n more time steps.
    """
    chex.assert_rank(bootstrap_values, 2)
    chex.assert_equal_shape(
        [timesteps.step_type, timesteps.reward, timesteps.discount, bootstrap_values]
    )
    assert 1 <= n_steps < bootstrap_values.shape[0], (n_steps, bootstrap_values.shape)
    is_last = timesteps.step_type == StepType.LAST
    returns = bootstrap_values
    # Each turn adds one step in front: from G⁰ to Gⁿ, of all time steps at once.
    for _ in range(n_steps):
        length = returns.shape[0] - 1
        following = slice(1, 1 + length)
        ahead = jnp.where(is_last[following], bootstrap_values[following], returns[1:])
        returns = timesteps.reward[following] + gamma * timesteps.discount[following] * ahead
    return returns
