"""Means and maxima over the devices that have something to learn from.

A shard whose env servers never came is empty. What its device computes, of rows of zeros, counts
for nothing: the update is that of the other devices, as if there were no more.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from seedrl.types import Array, Tree


class OverDevices(NamedTuple):
    """Over those devices of an axis that hold experience; of none, zeros.

    Attributes:
      mean: `tree -> tree`; what an agent's update gets as `mean`.
      largest: `[] -> []`, of floats.
      all_are: `[] bool -> [] bool`: whether it is so on each.
    """

    mean: Callable[[Tree], Tree]
    largest: Callable[[Array], Array]
    all_are: Callable[[Array], Array]


def over_devices(is_filled: Array, axis_name: str) -> OverDevices:
    """For a program that runs under the mapped axis; `is_filled`: `[] bool`, of this device.

    A device alone is asked for no update before it holds experience, and gets plain means: those
    below would be compiled to other roundings there, for nothing.
    """
    if jax.lax.psum(1, axis_name) == 1:
        return OverDevices(
            functools.partial(jax.lax.pmean, axis_name=axis_name),
            functools.partial(jax.lax.pmax, axis_name=axis_name),
            lambda value: jax.lax.pmin(value.astype(jnp.int32), axis_name) > 0,
        )
    number = jnp.maximum(jax.lax.psum(is_filled.astype(jnp.float32), axis_name), 1.0)

    def mean_of(leaf: Array) -> Array:
        # Not a product: what an empty device computes may be NaN.
        total = jax.lax.psum(jnp.where(is_filled, leaf, jnp.zeros_like(leaf)), axis_name)
        is_float = jnp.issubdtype(total.dtype, jnp.floating)
        return total / (number.astype(total.dtype) if is_float else number)

    def all_are(value: Array) -> Array:
        return jax.lax.pmin((value | ~is_filled).astype(jnp.int32), axis_name) > 0

    return OverDevices(
        mean=lambda tree: jax.tree.map(mean_of, tree),
        largest=lambda value: jax.lax.pmax(jnp.where(is_filled, value, -jnp.inf), axis_name),
        all_are=all_are,
    )
