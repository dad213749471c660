"""Copying plain bytes on the device that holds the replay: the limit of whatever only moves data.

On a CPU this is numpy's copy in one thread, into memory that is already there; on an accelerator a
compiled copy of the same size.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np


def copy_into_pool(num_bytes: int, pool_bytes: int) -> Callable[[], None]:
    """A function that copies `num_bytes` to the next place of a pool, in ring order."""
    return _copy(num_bytes, pool_bytes, is_into_pool=True)


def copy_out_of_pool(num_bytes: int, pool_bytes: int) -> Callable[[], None]:
    """A function that copies `num_bytes` from the next place of a pool, in ring order."""
    return _copy(num_bytes, pool_bytes, is_into_pool=False)


def _copy(num_bytes: int, pool_bytes: int, *, is_into_pool: bool) -> Callable[[], None]:
    device = jax.local_devices()[0]
    if device.platform != "cpu":
        return _device_copy(num_bytes, device)
    num_places = max(1, pool_bytes // num_bytes)
    # Written once: pages that the kernel has yet to give would make the first copies slow.
    pool = np.ones((num_places, num_bytes), np.uint8)
    buffer = np.ones(num_bytes, np.uint8)
    number = 0

    def copy() -> None:
        nonlocal number
        place = pool[number % num_places]
        number += 1
        np.copyto(place, buffer) if is_into_pool else np.copyto(buffer, place)

    return copy


def _device_copy(num_bytes: int, device: jax.Device) -> Callable[[], None]:
    source = jax.device_put(jnp.zeros(num_bytes, jnp.uint8), device)
    program = jax.jit(jnp.copy)

    def copy() -> None:
        program(source).block_until_ready()

    return copy
