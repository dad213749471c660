"""Torso, core and head as one flax module, behind the `Network` interface."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from seedrl.errors import ConfigError
from seedrl.networks.network import Network, NetworkInput
from seedrl.networks.recurrent import GRU, LSTM, stack_frames
from seedrl.networks.torsos import (
    SMALLEST_IMAGE,
    ObservationTorso,
    is_encoded,
    is_image,
)
from seedrl.specs import ArraySpec, EnvSpec
from seedrl.types import Array, Tree

_FRAMES_OF_IMAGES = 4  # as R2D2 and DQN


class View(NamedTuple):
    """How a network looks at observations: the settings of a configuration, resolved."""

    torso: str
    frame_stack: int


class NetworkCarry(NamedTuple):
    """What a network needs from before its first row; without leaves if it needs nothing.

    Attributes:
      core: the recurrent state, `[B, H] float32` leaves, or `()`.
      frames: for each image of the observation `[B, k - 1, *shape]` of its dtype, or `()`.
    """

    core: Tree
    frames: tuple[Array, ...]


class TorsoCoreHead(nn.Module):
    """Torso, core and head; see `seedrl.networks.config.QNetworkConfig` for the settings.

    Attributes:
      head: makes the head, which turns features `[T, B, D]` into the network's output.
      specs: the arrays of an observation, in wire order.
      num_actions: A; of a box of actions not asked for.
    """

    torso: str
    torso_sizes: tuple[int, ...]
    core: str
    core_size: int
    head: Callable[[], nn.Module]
    dtype: str
    specs: tuple[ArraySpec, ...]
    num_actions: int

    @nn.compact
    def __call__(self, carry: Tree, leaves: list[Array], inputs: NetworkInput) -> tuple[Tree, Tree]:
        """`leaves` and `inputs` are `[T, B, ...]` -> what the head gives, core carry."""
        num_rows, batch_size = inputs.is_first.shape
        # The torso has no memory: all T * B observations go through it as one batch.
        merged = [leaf.reshape(num_rows * batch_size, *leaf.shape[2:]) for leaf in leaves]
        torso = ObservationTorso(self.torso, self.torso_sizes, self.specs, self.dtype)
        features = torso(merged).reshape(num_rows, batch_size, -1)
        if self.core != "none":
            core = {"lstm": LSTM, "gru": GRU}[self.core]
            core_inputs = self._core_inputs(features, inputs)
            features, carry = core(self.core_size, self.dtype)(carry, core_inputs, inputs.is_first)
        return self.head()(features), carry

    def _core_inputs(self, features: Array, inputs: NetworkInput) -> Array:
        # On FIRST the previous action and reward are of another episode.
        continues = ~inputs.is_first[..., None]
        action = inputs.previous_action
        if action.dtype == jnp.float32:  # of a box
            action = action.reshape(*action.shape[:2], -1).astype(features.dtype)
        else:
            action = jax.nn.one_hot(action, self.num_actions, dtype=features.dtype)
        reward = inputs.reward[..., None].astype(features.dtype)
        history = jnp.concatenate([action, reward], axis=-1)
        return jnp.concatenate([features, jnp.where(continues, history, 0)], axis=-1)


def view(spec: EnvSpec, torso: str, frame_stack: int | None) -> View:
    """How a network of these settings looks at observations of `spec`.

    Args:
      torso: "auto" is resolved by what there is to see.
      frame_stack: so is None.

    Raises ConfigError where an image is needed (a convolutional torso, frame stacking) and the
    observation has none.
    """
    leaves = [leaf for _, leaf in spec.leaves()]
    if torso == "auto":
        torso = "nature" if any(is_encoded(leaf, "nature") for leaf in leaves) else "mlp"
    has_image = any(map(is_image, leaves))
    is_any_encoded = any(is_encoded(leaf, torso) for leaf in leaves)
    if frame_stack is None:
        frame_stack = _FRAMES_OF_IMAGES if is_any_encoded else 1
    if (torso != "mlp" and not is_any_encoded) or (frame_stack > 1 and not has_image):
        smallest = SMALLEST_IMAGE.get(torso, 1)
        size = f", {smallest} x {smallest} at least" if smallest > 1 else ""
        found = (f"{path} {leaf.dtype}{list(leaf.shape)}" for path, leaf in spec.leaves())
        raise ConfigError(
            f"network.torso {torso!r}, network.frame_stack {frame_stack}: expected an image "
            f"(uint8 of rank 2 or 3{size}), the observation has "
            f"{', '.join(found)}; leave both at their defaults, which follow the observation"
        )
    return View(torso, frame_stack)


def from_config(
    config: Any, spec: EnvSpec, num_actions: int, *, head: Callable[[], nn.Module]
) -> Network:
    """The pure functions of a network for environments of `spec`.

    Args:
      config: has `torso`, `torso_sizes`, `core`, `core_size`, `frame_stack` and `dtype`, as
        `seedrl.networks.config.QNetworkConfig` explains them.
      spec: of the environment.
      num_actions: A.
      head: makes the head.

    Raises ConfigError where an image is needed and the observation has none, see `view`.
    """
    # Resolved here, because a configuration is read before the environment is known.
    seen = view(spec, config.torso, config.frame_stack)
    module = TorsoCoreHead(
        torso=seen.torso,
        torso_sizes=config.torso_sizes,
        core=config.core,
        core_size=config.core_size,
        head=head,
        dtype=config.dtype,
        specs=tuple(leaf for _, leaf in spec.leaves()),
        num_actions=num_actions,
    )
    frame_stack = seen.frame_stack
    initial_carry = functools.partial(_initial_carry, module, frame_stack)
    return Network(
        init=functools.partial(_init, module, spec, initial_carry(1)),
        initial_carry=initial_carry,
        unroll=functools.partial(_unroll, module, spec),
    )


def _initial_carry(module: TorsoCoreHead, frame_stack: int, batch_size: int) -> NetworkCarry:
    core: Tree = ()
    if module.core == "lstm":
        core = LSTM.initial_carry(module.core_size, batch_size)
    elif module.core == "gru":
        core = GRU.initial_carry(module.core_size, batch_size)
    frames: tuple[Array, ...] = ()
    if frame_stack > 1:
        images = [spec for spec in module.specs if is_image(spec)]
        before = (batch_size, frame_stack - 1)
        frames = tuple(jnp.zeros((*before, *image.shape), image.dtype) for image in images)
    return NetworkCarry(core=core, frames=frames)


def _init(module: TorsoCoreHead, spec: EnvSpec, carry: NetworkCarry, key: Array) -> Tree:
    # As arrays of experience have them: without 64 bits.
    dtypes = [jax.dtypes.canonicalize_dtype(leaf.dtype) for leaf in module.specs]
    observation = [
        jnp.zeros((1, 1, *leaf.shape), dtype)
        for leaf, dtype in zip(module.specs, dtypes, strict=True)
    ]
    inputs = NetworkInput(
        observation=spec.unflatten(observation),
        previous_action=jnp.zeros((1, 1, *spec.action.array.shape), spec.action.array.dtype),
        reward=jnp.zeros((1, 1), jnp.float32),
        is_first=jnp.ones((1, 1), bool),
    )
    leaves, _ = _observed(module, spec, carry.frames, inputs)
    return module.init(key, carry.core, leaves, inputs)


def _unroll(
    module: TorsoCoreHead, spec: EnvSpec, params: Tree, carry: NetworkCarry, inputs: NetworkInput
) -> tuple[Tree, NetworkCarry]:
    chex.assert_rank([inputs.reward, inputs.is_first], 2)
    chex.assert_rank(inputs.previous_action, 2 + len(spec.action.array.shape))
    chex.assert_type(inputs.is_first, bool)
    leaves, frames = _observed(module, spec, carry.frames, inputs)
    output, core = module.apply(params, carry.core, leaves, inputs)
    return output, NetworkCarry(core=core, frames=frames)


def _observed(
    module: TorsoCoreHead, spec: EnvSpec, previous: tuple[Array, ...], inputs: NetworkInput
) -> tuple[list[Array], tuple[Array, ...]]:
    # The observation's arrays with stacked images, and the frames that the next call needs.
    leaves = spec.flatten(inputs.observation)
    if not previous:
        return leaves, ()
    seen: list[Array] = []
    kept: list[Array] = []
    for leaf_spec, leaf in zip(module.specs, leaves, strict=True):
        if is_image(leaf_spec):
            leaf, frames = stack_frames(leaf, previous[len(kept)], inputs.is_first)
            kept.append(frames)
        seen.append(leaf)
    return seen, tuple(kept)
