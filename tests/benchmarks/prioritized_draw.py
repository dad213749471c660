"""Prioritized draws of sequences, and reading every priority once: the least that needs them.

Each function compiles a program over random masses of a number of pages; what it returns runs that
once, waits for the result and returns 1.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from seedrl.replay.sampling import stratified_draw
from seedrl.types import Array, Tree

NUM_DRAWS = 64


def draw(num_pages: int) -> Callable[[], int]:
    """`NUM_DRAWS` draws as replay makes them."""
    return _compiled(lambda mass, key: stratified_draw(mass, key, NUM_DRAWS), num_pages)


def scan(num_pages: int) -> Callable[[], int]:
    """The sum of all masses."""
    return _compiled(lambda mass, key: jnp.sum(mass), num_pages)


def flat_draw(num_pages: int) -> Callable[[], int]:
    """As many draws by one prefix sum and a binary search, which lose small masses."""
    return _compiled(_flat_draw, num_pages)


def _flat_draw(mass: Array, key: Array) -> Array:
    prefix = jnp.cumsum(mass)
    strata = jnp.arange(NUM_DRAWS) + jax.random.uniform(key, (NUM_DRAWS,))
    return jnp.searchsorted(prefix, strata / NUM_DRAWS * prefix[-1])


def _compiled(function: Callable[[Array, Array], Tree], num_pages: int) -> Callable[[], int]:
    masses = np.random.default_rng(0).exponential(size=num_pages)
    mass, key = jnp.asarray(masses, jnp.float32), jax.random.PRNGKey(0)
    program = jax.jit(function)

    def run() -> int:
        jax.block_until_ready(program(mass, key))
        return 1

    run()
    return run
