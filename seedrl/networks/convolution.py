"""A convolution of images whose gradient is quick on CPUs, too.

Forward it is XLA's. Backward XLA has none for CPUs that is quick inside a loop, such as that over
the minibatches of an update: of the Nature network on 42 x 42 frames a row took 4,200 µs of CPU
time there, and 225 outside of it. As matrix products over patches it takes 190 in either (two cores
of a Xeon, jax 0.10).
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from seedrl.types import Array

_Pads = tuple[tuple[int, int], ...]


def convolve(
    images: Array, kernel: Array, strides: Sequence[int], padding: Any, **plain: Any
) -> Array:
    """`[N, H, W, C]`, `[h, w, C, F]` -> `[N, H', W', F]`: `conv_general_dilated` of a `nn.Conv`.

    `plain`: its other arguments, which must say what they say by default.
    """
    assert set(plain["lhs_dilation"]) == set(plain["rhs_dilation"]) == {1}, plain
    assert plain["feature_group_count"] == 1 and plain["precision"] is None, plain
    pads = padding
    if isinstance(padding, str):
        pads = jax.lax.padtype_to_pads(images.shape[1:3], kernel.shape[:2], strides, padding)
    return _convolve(images, kernel, tuple(strides), tuple(map(tuple, pads)))


def _of_xla(strides: tuple[int, ...], pads: _Pads, images: Array, kernel: Array) -> Array:
    layout = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(images, kernel, strides, pads, dimension_numbers=layout)


def _as_product(strides: tuple[int, ...], pads: _Pads, images: Array, kernel: Array) -> Array:
    """The patches that the kernel sees, one a row, times the kernel."""
    images = jnp.pad(images, ((0, 0), *pads, (0, 0)))
    height, width, _, features = kernel.shape
    down, right = strides
    rows = images.shape[1] - height + 1
    columns = images.shape[2] - width + 1
    shifted = [
        images[:, i : i + rows : down, j : j + columns : right]
        for i in range(height)
        for j in range(width)
    ]
    return jnp.concatenate(shifted, axis=-1) @ kernel.reshape(-1, features)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _convolve(images: Array, kernel: Array, strides: tuple[int, ...], pads: _Pads) -> Array:
    return _of_xla(strides, pads, images, kernel)


def _forward(
    images: Array, kernel: Array, strides: tuple[int, ...], pads: _Pads
) -> tuple[Array, tuple[Array, Array]]:
    return _of_xla(strides, pads, images, kernel), (images, kernel)


def _backward(
    strides: tuple[int, ...], pads: _Pads, seen: tuple[Array, Array], gradient: Array
) -> tuple[Array, Array]:
    def by(function: Callable[..., Array]) -> Callable[[Array, Array, Array], Any]:
        convolution = functools.partial(function, strides, pads)
        return lambda images, kernel, gradient: jax.vjp(convolution, images, kernel)[1](gradient)

    gradients: tuple[Array, Array] = jax.lax.platform_dependent(
        *seen, gradient, cpu=by(_as_product), default=by(_of_xla)
    )
    return gradients


_convolve.defvjp(_forward, _backward)
