"""Torsos: from an observation's arrays to one vector of features."""

import functools
import math
from collections.abc import Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from seedrl.networks.convolution import convolve
from seedrl.specs import ArraySpec
from seedrl.types import Array

_Conv = functools.partial(nn.Conv, conv_general_dilated=convolve)

# Rows and columns of the smallest image, of which an encoder's convolutions leave one.
SMALLEST_IMAGE = {"nature": 36, "shallow": 20, "impala": 1, "minatar": 3}


def is_image(spec: ArraySpec) -> bool:
    """Whether an array is an image: uint8 of shape `[H, W]` or `[H, W, C]`, or float16.

    The latter is what normalization makes of images.
    """
    return spec.dtype in ("uint8", "float16") and len(spec.shape) in (2, 3)


def is_encoded(spec: ArraySpec, torso: str) -> bool:
    """Whether the convolutions of `torso` take an array; if not, it is flattened."""
    if torso == "mlp" or not is_image(spec):
        return False
    return min(spec.shape[:2]) >= SMALLEST_IMAGE[torso]


def uniform_dense(inputs: int, size: int, **plain: Any) -> nn.Dense:
    """A dense layer that begins as a linear one of PyTorch does, biases too.

    Every number is drawn from within plus or minus 1 / sqrt(inputs): a third of the variance that
    flax's kernels have. It is what the usual settings of SAC were found with; with flax's own,
    HalfCheetah is learned later (lab record of `halfcheetah_sac`).
    """
    bound = 1.0 / math.sqrt(inputs)

    def init(key: Array, shape: Sequence[int], dtype: Any) -> Array:
        return jax.random.uniform(key, shape, dtype, -bound, bound)

    return nn.Dense(size, kernel_init=init, bias_init=init, **plain)


class MLP(nn.Module):
    """Dense layers, each followed by a ReLU: `[..., D]` -> `[..., sizes[-1]]`.

    Their numbers begin as flax has them, or, if `is_uniform`, as `uniform_dense`.
    """

    sizes: Sequence[int]
    dtype: str = "float32"
    is_uniform: bool = False

    @nn.compact
    def __call__(self, features: Array) -> Array:
        """See the class."""
        for size in self.sizes:
            inputs = features.shape[-1]
            dense = (
                uniform_dense(inputs, size, dtype=self.dtype)
                if self.is_uniform
                else nn.Dense(size, dtype=self.dtype)
            )
            features = nn.relu(dense(features))
        return features


class NatureEncoder(nn.Module):
    """The convolutions of DQN: `[N, H, W, C]` -> `[N, D]`.

    Source: Mnih et al. 2015, methods: 32 filters 8x8 stride 4, 64 4x4 stride 2, 64 3x3 stride 1.
    """

    dtype: str = "float32"

    @nn.compact
    def __call__(self, images: Array) -> Array:
        """See the class."""
        for features, kernel, stride in ((32, 8, 4), (64, 4, 2), (64, 3, 1)):
            convolution = _Conv(
                features, (kernel, kernel), (stride, stride), padding="VALID", dtype=self.dtype
            )
            images = nn.relu(convolution(images))
        return images.reshape(images.shape[0], -1)


class ShallowEncoder(nn.Module):
    """The small network of IMPALA: `[N, H, W, C]` -> `[N, D]`.

    Of 42 x 42 it keeps 3 x 3 places, where that of DQN keeps one, for under half the operations.

    Source: Espeholt et al. 2018, figure 3 (left): 16 filters 8x8 stride 4, 32 4x4 stride 2; a dense
    layer of 256 follows.
    """

    dtype: str = "float32"

    @nn.compact
    def __call__(self, images: Array) -> Array:
        """See the class."""
        for features, kernel, stride in ((16, 8, 4), (32, 4, 2)):
            convolution = _Conv(
                features, (kernel, kernel), (stride, stride), padding="VALID", dtype=self.dtype
            )
            images = nn.relu(convolution(images))
        return images.reshape(images.shape[0], -1)


class ImpalaEncoder(nn.Module):
    """The residual network of IMPALA: `[N, H, W, C]` -> `[N, D]`.

    Source: Espeholt et al. 2018, figure 3 (right): three sections of 16, 32 and 32 filters, each a
    convolution, a max pooling of stride 2 and two residual blocks.
    """

    dtype: str = "float32"

    @nn.compact
    def __call__(self, images: Array) -> Array:
        """See the class."""
        for features in (16, 32, 32):
            images = _Conv(features, (3, 3), dtype=self.dtype)(images)
            images = nn.max_pool(images, (3, 3), strides=(2, 2), padding="SAME")
            for _ in range(2):
                block = _Conv(features, (3, 3), dtype=self.dtype)(nn.relu(images))
                block = _Conv(features, (3, 3), dtype=self.dtype)(nn.relu(block))
                images = images + block
        return nn.relu(images).reshape(images.shape[0], -1)


class MinAtarEncoder(nn.Module):
    """The convolution of MinAtar's own agents, for small images: `[N, H, W, C]` -> `[N, D]`.

    Source: Young and Tian 2019 (`examples/dqn.py` of MinAtar): 16 filters 3x3 stride 1; a dense
    layer of 128 follows.
    """

    dtype: str = "float32"

    @nn.compact
    def __call__(self, images: Array) -> Array:
        """See the class."""
        images = nn.relu(_Conv(16, (3, 3), padding="VALID", dtype=self.dtype)(images))
        return images.reshape(images.shape[0], -1)


_ENCODERS = {
    "nature": NatureEncoder,
    "shallow": ShallowEncoder,
    "impala": ImpalaEncoder,
    "minatar": MinAtarEncoder,
}


class ObservationTorso(nn.Module):
    """Every array of an observation -> one vector of features, `[N, D]` of `dtype`.

    Images go through the encoder that `torso` names ("mlp": none); everything else, and what is too
    small for that encoder, is flattened. The concatenation goes through dense layers of `sizes`.
    uint8 is divided by 255, whatever its shape; every other dtype is taken at its value. For
    `is_uniform` see `MLP`.
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
            values = leaf.astype(self.dtype)
            if spec.dtype == "uint8":
                values = values / 255
            if is_encoded(spec, self.torso):
                encoder = _ENCODERS[self.torso](self.dtype)
                values = encoder(values.reshape(*values.shape[:3], -1))
            features.append(values.reshape(values.shape[0], -1))
        dense = MLP(self.sizes, self.dtype, self.is_uniform, name="dense")
        return dense(jnp.concatenate(features, axis=-1))
