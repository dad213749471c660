"""Epsilon-greedy exploration with an epsilon of its own for each slot, and the numbers it draws."""

import math

import chex
import jax
import jax.numpy as jnp
import numpy as np

from seedrl.types import Array

# Of Threefry-2x32, by round.
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def epsilons(num_slots: int, *, base: float = 0.4, alpha: float = 7.0) -> np.ndarray:
    """The epsilon of each training slot: ε_i = base^(1 + α i / (N - 1)), `[N] float32`.

    Source: Horgan et al. 2018 (Ape-X), section 4.1, base 0.4 and alpha 7; R2D2 keeps them.
    """
    # A single slot gets `base`, the most exploratory one.
    assert num_slots >= 0, num_slots
    positions = np.arange(num_slots, dtype=np.float64) / max(num_slots - 1, 1)
    return (base ** (1 + alpha * positions)).astype(np.float32)


def decayed(start: np.ndarray, end: np.ndarray, decay_steps: int, env_steps: int) -> np.ndarray:
    """ε(t) = end + (start - end) max(0, 1 - t / T) at environment step t, T = `decay_steps`.

    `start` and `end` are `[S]`, of each slot; returns `[S] float32`, `end` if T is 0.
    """
    if env_steps >= decay_steps:
        return np.asarray(end, np.float32)
    left = 1 - env_steps / decay_steps
    from_, to = np.asarray(start, np.float64), np.asarray(end, np.float64)
    return (to + (from_ - to) * left).astype(np.float32)


def epsilon_greedy(
    key: Array, q_values: Array, epsilon: Array, legal: Array | None = None
) -> Array:
    """A uniform action with probability epsilon, otherwise the first greedy one: `[B] int32`.

    Consumes the key. `q_values` is `[B, A] float32`, `epsilon` `[B] float32` in [0, 1]. `legal [B,
    A] bool`, at least one in each row, bounds the uniform action; Q-values of other actions are
    -inf.
    """
    chex.assert_rank([q_values, epsilon], [2, 1])
    chex.assert_equal_shape_prefix([q_values, epsilon], 1)
    batch_size, num_actions = q_values.shape
    whether, which = uniform(key, (2, batch_size))
    explores = whether < epsilon
    # `which` is at most 1 - 2^-23, so that even rounded the product is less than num_actions.
    if legal is None:
        random = jnp.floor(which * num_actions).astype(jnp.int32)
    else:
        # The k-th of the legal ones, from 0: the first with more than k up to and with itself.
        kth = jnp.floor(which * jnp.sum(legal, axis=-1))
        counted = jnp.cumsum(legal, axis=-1)
        random = jnp.argmax(counted > kth[:, None], axis=-1).astype(jnp.int32)
    greedy = jnp.argmax(q_values, axis=-1).astype(jnp.int32)
    return jnp.where(explores, random, greedy)


def uniform(key: Array, shape: tuple[int, ...]) -> Array:
    """The numbers of `jax.random.uniform(key, shape)`, float32 in [0, 1). Consumes the key.

    On CPUs jax draws them in a loop of many small programs, which take as long as a small network.
    Here all rounds are one expression, which is compiled into one program.

    Source: Salmon et al. 2011, "Parallel Random Numbers: As Easy as 1, 2, 3", Threefry-2x32 with 20
    rounds; the counters are jax's.
    """
    first, second = jax.random.key_data(key)
    keys = (first, second, first ^ second ^ np.uint32(0x1BD11BDA))
    low = jnp.arange(math.prod(shape), dtype=jnp.uint32) + keys[1]
    high = jnp.broadcast_to(keys[0], low.shape)
    for block in range(5):
        for distance in _ROTATIONS[block % 2]:
            high += low
            low = high ^ (low << distance | low >> 32 - distance)
        high += keys[(block + 1) % 3]
        low += keys[(block + 2) % 3] + np.uint32(block + 1)
    # 23 bits behind the point of a number in [1, 2).
    bits = (high ^ low) >> 9 | np.float32(1).view(np.uint32)
    return (jax.lax.bitcast_convert_type(bits, jnp.float32) - 1).reshape(shape)


def gumbel(key: Array, shape: tuple[int, ...]) -> Array:
    """The numbers of `jax.random.gumbel(key, shape)`, `-log(-log(u))`; see `uniform`."""
    # 0 has no logarithm.
    return -jnp.log(-jnp.log(jnp.maximum(uniform(key, shape), np.finfo(np.float32).tiny)))
