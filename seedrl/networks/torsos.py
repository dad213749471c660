"""Torsos: from an observation's arrays to one vector of features."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeAlias

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from seedrl.observations import bounds_of, categories_of, meaning_of
from seedrl.specs import ArraySpec
from seedrl.types import Array

_Pads: TypeAlias = tuple[tuple[int, int], tuple[int, int]]
_Size: TypeAlias = tuple[int, int]


# Not that of flax, whose derivative at 0 is 0: with it no layer whose biases begin at 0 would ever
# learn from an observation of zeros.
@jax.custom_jvp
def relu(x: Array) -> Array:
    """max(x, 0), whose derivative at 0 is 1."""
    return jnp.maximum(x, 0)


@relu.defjvp
def _relu_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (x,), (tangent,) = primals, tangents
    return relu(x), jax.lax.select(x >= 0, tangent, jnp.zeros_like(tangent))


def uniform_dense(inputs: int, size: int, **plain: Any) -> nn.Dense:
    """A dense layer that begins as a linear one of PyTorch does, biases too."""
    # A third of the variance of flax's kernels. The usual settings of SAC were found with it; with
    # flax's own HalfCheetah is learned later (docstring of `halfcheetah_sac`).
    bound = 1.0 / math.sqrt(inputs)

    def init(key: Array, shape: Sequence[int], dtype: Any) -> Array:
        return jax.random.uniform(key, shape, dtype, -bound, bound)

    return nn.Dense(size, kernel_init=init, bias_init=init, **plain)


class MLP(nn.Module):
    """Dense layers, each followed by a ReLU: `[..., D]` -> `[..., sizes[-1]]`.

    If `is_uniform` they are of `uniform_dense`.
    """

    sizes: Sequence[int]
    dtype: str = "float32"
    is_uniform: bool = False

    @nn.compact
    def __call__(self, features: Array) -> Array:
        for size in self.sizes:
            inputs = features.shape[-1]
            dense = (
                uniform_dense(inputs, size, dtype=self.dtype)
                if self.is_uniform
                else nn.Dense(size, dtype=self.dtype)
            )
            features = relu(dense(features))
        return features


def convolve(
    images: Array, kernel: Array, strides: Sequence[int], padding: Any, **plain: Any
) -> Array:
    """`[N, H, W, C]`, `[h, w, C, F]` -> `[N, H', W', F]`: `conv_general_dilated` of a `nn.Conv`.

    `plain`: its other arguments, which must be the defaults.
    """
    # Forward it is XLA's. Backward XLA has none for CPUs that is quick inside a loop, such as that
    # over the minibatches of an update: of the Nature network 360 images of 84 x 84 take four
    # seconds there, and 120 ms outside of it. As a sum of matrix products they take 90 in either
    # (two cores of an EPYC, jax 0.10).
    assert set(plain["lhs_dilation"]) == set(plain["rhs_dilation"]) == {1}, plain
    assert plain["feature_group_count"] == 1 and plain["precision"] is None, plain
    pads = padding
    if isinstance(padding, str):
        pads = jax.lax.padtype_to_pads(images.shape[1:3], kernel.shape[:2], strides, padding)
    return _convolve(images, kernel, tuple(strides), tuple(map(tuple, pads)))


def _of_xla(strides: _Size, pads: _Pads, images: Array, kernel: Array) -> Array:
    layout = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(images, kernel, strides, pads, dimension_numbers=layout)


def _as_products(strides: _Size, pads: _Pads, images: Array, kernel: Array) -> Array:
    # The same as a sum of matrix products, one for each block of the kernel. Images and kernel are
    # cut into blocks of one stride. With all values of a block as its channels, a kernel of 8 x 8
    # pixels, 4 channels and stride 4 has 2 x 2 blocks of 64 channels and stride 1.
    down, right = strides
    rows = (images.shape[1] + sum(pads[0]) - kernel.shape[0]) // down + 1
    columns = (images.shape[2] + sum(pads[1]) - kernel.shape[1]) // right + 1
    height, width = -(-kernel.shape[0] // down), -(-kernel.shape[1] // right)
    first = (pads[0][0], pads[1][0])
    seen = _blocks(images, strides, first, (rows + height - 1, columns + width - 1))
    weights = _blocks(jnp.moveaxis(kernel, -1, 0), strides, (0, 0), (height, width))
    terms = [
        seen[:, i : i + rows, j : j + columns] @ weights[:, i, j].T
        for i in range(height)
        for j in range(width)
    ]
    return functools.reduce(jnp.add, terms)


def _blocks(images: Array, block: _Size, before: _Size, number: _Size) -> Array:
    # Cuts `[N, H, W, C]` into `[N, *number, block C]`. `before` rows and columns of zeros are added
    # at the top and left. At the bottom and right zeros are added, or pixels that no kernel sees
    # are cut off, until `number` blocks remain.
    below = number[0] * block[0] - before[0] - images.shape[1]
    behind = number[1] * block[1] - before[1] - images.shape[2]
    edges = ((0, 0, 0), (before[0], below, 0), (before[1], behind, 0), (0, 0, 0))
    images = jax.lax.pad(images, jnp.zeros((), images.dtype), edges)
    split = images.reshape(-1, number[0], block[0], number[1], block[1], images.shape[-1])
    return jnp.moveaxis(split, 2, 3).reshape(-1, *number, math.prod(block) * images.shape[-1])


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _convolve(images: Array, kernel: Array, strides: _Size, pads: _Pads) -> Array:
    return _of_xla(strides, pads, images, kernel)


def _forward(
    images: Array, kernel: Array, strides: _Size, pads: _Pads
) -> tuple[Array, tuple[Array, Array]]:
    return _of_xla(strides, pads, images, kernel), (images, kernel)


def _backward(
    strides: _Size, pads: _Pads, seen: tuple[Array, Array], gradient: Array
) -> tuple[Array, Array]:
    def by(function: Callable[..., Array]) -> Callable[[Array, Array, Array], Any]:
        convolution = functools.partial(function, strides, pads)
        return lambda images, kernel, gradient: jax.vjp(convolution, images, kernel)[1](gradient)

    gradients: tuple[Array, Array] = jax.lax.platform_dependent(
        *seen, gradient, cpu=by(_as_products), default=by(_of_xla)
    )
    return gradients


_convolve.defvjp(_forward, _backward)


_Conv = functools.partial(nn.Conv, conv_general_dilated=convolve)


class _Convolutions(nn.Module):
    """Convolutions, each followed by a ReLU: `[N, H, W, C]` -> `[N, D]`.

    Every pixel is seen. Where the strides of a layer do not fit its input, zeros are added below
    and to the right: without them the paddles of Breakout and Pong are not seen in 42 x 42.
    """

    dtype: str = "float32"
    # Filters, size and stride of each.
    layers: ClassVar[tuple[tuple[int, int, int], ...]] = ()

    @nn.compact
    def __call__(self, images: Array) -> Array:
        for features, kernel, stride in self.layers:
            added = [(0, (kernel - size) % stride) for size in images.shape[1:3]]
            convolution = _Conv(
                features, (kernel, kernel), (stride, stride), padding=added, dtype=self.dtype
            )
            images = relu(convolution(images))
        return images.reshape(images.shape[0], -1)


class NatureEncoder(_Convolutions):
    """The convolutions of DQN (Mnih et al. 2015, methods)."""

    layers = ((32, 8, 4), (64, 4, 2), (64, 3, 1))


class MinAtarEncoder(_Convolutions):
    """The convolution of MinAtar's own agents (Young and Tian 2019, `examples/dqn.py`)."""

    layers = ((16, 3, 1),)


class ImpalaEncoder(nn.Module):
    """The residual network of IMPALA (Espeholt et al. 2018, figure 3, right).

    `[N, H, W, C]` -> `[N, D]`: three sections of 16, 32 and 32 filters, each a convolution, a max
    pooling of stride 2 and two residual blocks.
    """

    dtype: str = "float32"

    @nn.compact
    def __call__(self, images: Array) -> Array:
        for features in (16, 32, 32):
            images = _Conv(features, (3, 3), dtype=self.dtype)(images)
            images = nn.max_pool(images, (3, 3), strides=(2, 2), padding="SAME")
            for _ in range(2):
                block = _Conv(features, (3, 3), dtype=self.dtype)(relu(images))
                block = _Conv(features, (3, 3), dtype=self.dtype)(relu(block))
                images = images + block
        return relu(images).reshape(images.shape[0], -1)


_ENCODERS = {"nature": NatureEncoder, "impala": ImpalaEncoder, "minatar": MinAtarEncoder}


class ObservationTorso(nn.Module):
    """Every array of an observation -> one vector of features, `[N, D]` of `dtype`.

    `seedrl.observations` has the table of what is made of each; pictures go through the encoder
    that `torso` names. The concatenation goes through an `MLP`.
    """

    torso: str
    sizes: Sequence[int]
    specs: Sequence[ArraySpec]
    dtype: str = "float32"
    is_uniform: bool = False

    @nn.compact
    def __call__(self, leaves: Sequence[Array]) -> Array:
        """`leaves` are `[N, *shape]` in wire order, or `[N, *shape, k]` for k stacked frames."""
        features = []
        for spec, leaf in zip(self.specs, leaves, strict=True):
            meaning = meaning_of(spec, self.torso)
            values = _scaled(spec, leaf) if meaning.is_scaled else leaf
            if spec.is_categorical:
                values = _one_hot(spec, leaf)
            values = values.astype(self.dtype)
            if meaning.kind == "picture":
                # `[N, H, W, C]`: all channels together, those of stacked frames too.
                values = jnp.moveaxis(values, [1 + axis for axis in meaning.axes], (1, 2))
                values = _ENCODERS[self.torso](self.dtype)(values.reshape(*values.shape[:3], -1))
            features.append(values.reshape(values.shape[0], -1))
        dense = MLP(self.sizes, self.dtype, self.is_uniform, name="dense")
        return dense(jnp.concatenate(features, axis=-1))


def _scaled(spec: ArraySpec, leaf: Array) -> Array:
    # From its bounds to 0 to 1; an element whose bounds are equal stays at 0.
    low, high = (np.array(bound, np.float32) for bound in bounds_of(spec))
    shape = (1, *spec.shape, *[1] * (leaf.ndim - 1 - len(spec.shape))) if len(low) > 1 else ()
    width = np.where(high > low, high - low, np.float32(1)).reshape(shape)
    return (leaf.astype(jnp.float32) - low.reshape(shape)) / width


def _one_hot(spec: ArraySpec, leaf: Array) -> Array:
    # `[N, W, k] bool`, with W the categories of all elements.
    counts = categories_of(spec)
    # `[N, E, k] int32`: numbers of the categories among those of all E elements.
    first = np.cumsum(counts) - counts - np.array(spec.low, np.int64)
    seen = leaf.reshape(leaf.shape[0], len(counts), -1).astype(jnp.int32)
    positions = seen + first.astype(np.int32)[None, :, None]
    element = np.repeat(np.arange(len(counts)), counts)
    return positions[:, element] == np.arange(len(element), dtype=np.int32)[None, :, None]
