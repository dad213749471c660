"""Torsos: shapes of the published networks, scaling and mixed observations."""

import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedrl.networks.torsos import (
    ImpalaEncoder,
    MinAtarEncoder,
    NatureEncoder,
    ObservationTorso,
    convolve,
)
from seedrl.specs import ArraySpec
from tests.gated import all_but
from tests.seedrl.random_parameters import random_parameters

IMAGE = ArraySpec((6, 6, 3), "uint8")
VECTOR = ArraySpec((4,), "float32")


def shapes(module: Any, *inputs: Any) -> tuple[list[tuple[int, ...]], tuple[int, ...]]:
    """Kernel shapes in order of the layers, and the output's shape, without computing anything."""
    params = jax.eval_shape(module.init, jax.random.key(0), *inputs)
    output = jax.eval_shape(module.apply, params, *inputs)
    layers = sorted(params["params"].items(), key=lambda item: int(item[0].split("_")[1]))
    return [layer["kernel"].shape for _, layer in layers], output.shape


SECTIONS = [
    [(3, 3, depth, size)] + 4 * [(3, 3, size, size)]
    for depth, size in [(3, 16), (16, 32), (32, 32)]
]


@pytest.mark.parametrize(
    ("encoder", "image", "kernels", "output"),
    [
        (NatureEncoder, (84, 84, 4), [(8, 8, 4, 32), (4, 4, 32, 64), (3, 3, 64, 64)], 7 * 7 * 64),
        (ImpalaEncoder, (72, 96, 3), [kernel for s in SECTIONS for kernel in s], 9 * 12 * 32),
        (MinAtarEncoder, (10, 10, 4), [(3, 3, 4, 16)], 8 * 8 * 16),
    ],
)
def test_encoders_are_those_of_the_papers(
    encoder: Any, image: Any, kernels: Any, output: int
) -> None:
    assert shapes(encoder(), jnp.zeros((1, *image))) == (kernels, (1, output))


@pytest.mark.parametrize("size", [(36, 36), (42, 42), (45, 47), (84, 84)])
@pytest.mark.parametrize("encoder", [NatureEncoder, MinAtarEncoder])
def test_every_pixel_changes_the_features(encoder: Any, size: tuple[int, int]) -> None:
    # With positive weights and pixels, each pixel that is seen raises the sum of the features.
    images = jnp.ones((1, *size, 1))
    shapes = jax.eval_shape(encoder().init, jax.random.key(0), images)
    params = jax.tree.map(lambda leaf: jnp.full(leaf.shape, 0.01), shapes)
    gradient = jax.grad(lambda images: encoder().apply(params, images).sum())(images)
    assert (gradient > 0).all()


def test_without_layers_an_mlp_torso_is_the_scaled_flat_observation() -> None:
    specs = (IMAGE, VECTOR, ArraySpec((), "int64"), ArraySpec((2,), "bool"))
    torso = ObservationTorso("mlp", (), specs)
    image = np.arange(108, dtype=np.uint8).reshape(1, 6, 6, 3) + 100
    leaves = [image, np.full((1, 4), -2.5, np.float32), np.array([7]), np.array([[True, False]])]
    features = torso.apply({}, leaves)
    np.testing.assert_allclose(features[0, :108], np.arange(100, 208) / 255, rtol=1e-6)
    np.testing.assert_array_equal(features[0, 108:], [-2.5, -2.5, -2.5, -2.5, 7, 1, 0])


def test_stacked_frames_become_channels_and_vectors_join_after_the_encoder() -> None:
    specs = (ArraySpec((36, 36, 3), "uint8"), VECTOR)
    torso = ObservationTorso("nature", (10,), specs)
    leaves = [jnp.zeros((2, 36, 36, 3, 4), jnp.uint8), jnp.zeros((2, 4))]
    params = jax.eval_shape(torso.init, jax.random.key(0), leaves)["params"]
    assert params["NatureEncoder_0"]["Conv_0"]["kernel"].shape == (8, 8, 3 * 4, 32)
    assert params["dense"]["Dense_0"]["kernel"].shape == (64 + 4, 10)


def test_categories_are_one_hot_and_integers_scaled_by_their_bounds() -> None:
    specs = (
        ArraySpec((), "int64", (3.0,), (5.0,), is_categorical=True),
        ArraySpec((2,), "int64", (0.0, 1.0), (1.0, 3.0), is_categorical=True),
        ArraySpec((3,), "uint8", (0.0,), (1.0,)),
        ArraySpec((2,), "int32", (-10.0, 7.0), (10.0, 7.0)),
        ArraySpec((1,), "float32", (0.0,), (9.0,)),
    )
    leaves = [
        np.array([4, 5]),
        np.array([[1, 1], [0, 3]]),
        np.array([[0, 1, 0], [1, 1, 0]], np.uint8),
        np.array([[-10, 7], [5, 7]], np.int32),
        np.array([[4.5], [9]], np.float32),
    ]
    features = ObservationTorso("mlp", (), specs).apply({}, leaves)
    np.testing.assert_array_equal(
        features,
        [
            [*(0, 1, 0), *(0, 1, 1, 0, 0), *(0, 1, 0), *(0, 0), 4.5],
            [*(0, 0, 1), *(1, 0, 0, 0, 1), *(1, 1, 0), *(0.75, 0), 9],
        ],
    )


_STACKS = {
    "channels first": ((3, 40, 36), (1, 2, 0)),
    "a stack of coloured frames": ((2, 40, 36, 3), (1, 2, 0, 3)),
    "a stack of frames with channels first": ((2, 3, 40, 36), (2, 3, 0, 1)),
    "gray": ((40, 36), (0, 1)),
}


@pytest.mark.parametrize("name", _STACKS)
def test_pictures_of_any_layout_are_convolved_by_rows_and_columns(name: str) -> None:
    shape, order = _STACKS[name]
    picture = np.random.default_rng(0).uniform(-1, 1, (2, *shape)).astype(np.float32)
    last = np.moveaxis(picture, [1 + axis for axis in order], range(1, 1 + len(order)))
    last = (last.reshape(2, 40, 36, -1) + 1) / 2
    torso = ObservationTorso("nature", (), [ArraySpec(shape, "float32", (-1.0,), (1.0,))])
    params = random_parameters(lambda key: torso.init(key, [picture]))
    encoder = {"params": params["params"]["NatureEncoder_0"]}
    found, expected = (jax.jit(module.apply) for module in (torso, NatureEncoder()))
    np.testing.assert_allclose(found(params, [picture]), expected(encoder, last), atol=1e-6)


_LAYERS = {
    "kernel over the edge": ((9, 8, 2), {"kernel_size": (3, 3)}),
    "strides, and a rest that no kernel sees": (
        (11, 10, 2),
        {"kernel_size": (4, 3), "strides": (2, 3), "padding": "VALID"},
    ),
    "strides over the edge": ((7, 9, 1), {"kernel_size": (4, 3), "strides": (3, 2)}),
}


@pytest.mark.parametrize("name", all_but(["strides over the edge"], _LAYERS))
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
