"""Convolutions: their gradients are those of XLA's own, however they are computed."""

import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedrl.networks.convolution import convolve

_LAYERS = {
    "kernel over the edge": ((9, 8, 2), {"kernel_size": (3, 3)}),
    "strides, and a rest that no kernel sees": (
        (11, 10, 2),
        {"kernel_size": (4, 3), "strides": (2, 3), "padding": "VALID"},
    ),
    "strides over the edge": ((7, 9, 1), {"kernel_size": (4, 3), "strides": (3, 2)}),
}


@pytest.mark.parametrize("name", _LAYERS)
def test_gradients_are_those_of_a_plain_convolution(name: str) -> None:
    shape, fields = _LAYERS[name]
    layer = functools.partial(nn.Conv, 4, **fields)
    plain, ours = layer(), layer(conv_general_dilated=convolve)
    images = jax.random.normal(jax.random.key(0), (2, *shape))
    kernel = jax.random.normal(jax.random.key(1), (*fields["kernel_size"], shape[-1], 4))
    params = {"params": {"kernel": kernel, "bias": jnp.ones(4)}}

    def of(module: nn.Module) -> Any:
        def value(params: Any, images: Any) -> Any:
            output = module.apply(params, images)
            return jnp.sum(jnp.sin(output)), output

        return jax.jit(jax.value_and_grad(value, argnums=(0, 1), has_aux=True))(params, images)

    ((_, expected), gradients), ((_, output), found) = of(plain), of(ours)
    np.testing.assert_array_equal(output, expected)
    jax.tree.map(
        functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5), found, gradients
    )


def test_what_is_not_a_plain_convolution_is_refused() -> None:
    layer = nn.Conv(4, (3, 3), kernel_dilation=(2, 2), conv_general_dilated=convolve)
    with pytest.raises(AssertionError):
        layer.init(jax.random.key(0), jnp.zeros((1, 9, 9, 2)))
