"""Torso, core and head as one flax module, behind the `Network` interface."""

from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from seedrl.networks.network import Network, NetworkInput
from seedrl.networks.recurrent import LSTM, stack_frames
from seedrl.networks.torsos import ObservationTorso
from seedrl.observations import stacked_arrays, view
from seedrl.specs import ActionSpec, ArraySpec, DiscreteSpec, EnvSpec, MultiDiscreteSpec
from seedrl.types import Array, Tree


class NetworkCarry(NamedTuple):
    """State of a network from before a time step; without leaves if it needs none."""

    core: Tree  # the recurrent state, `[B, H] float32` leaves, or `()`
    frames: tuple[Array, ...]  # for each stacked array `[B, k - 1, *shape]` of its dtype, or `()`


class TorsoCoreHead(nn.Module):
    """Torso, core and head; see `seedrl.networks.config.QNetworkConfig` for the settings."""

    torso: str
    torso_sizes: tuple[int, ...]
    core: str
    core_size: int
    head: Callable[[], nn.Module]  # makes it: from features `[T, B, D]` to the network's output
    dtype: str
    specs: tuple[ArraySpec, ...]  # the arrays of an observation, in wire order
    action: ActionSpec

    @nn.compact
    def __call__(self, carry: Tree, leaves: list[Array], inputs: NetworkInput) -> tuple[Tree, Tree]:
        """`leaves` and `inputs` are `[T, B, ...]` -> the head's output, core carry."""
        num_steps, batch_size = inputs.is_first.shape
        # The torso has no memory: all T * B observations go through it as one batch.
        merged = [leaf.reshape(num_steps * batch_size, *leaf.shape[2:]) for leaf in leaves]
        torso = ObservationTorso(self.torso, self.torso_sizes, self.specs, self.dtype)
        features = torso(merged).reshape(num_steps, batch_size, -1)
        if self.core != "none":
            core = LSTM(self.core_size, self.dtype)
            features, carry = core(carry, self._core_inputs(features, inputs), inputs.is_first)
        return self.head()(features), carry

    def _core_inputs(self, features: Array, inputs: NetworkInput) -> Array:
        # On FIRST the previous action and reward are of another episode.
        continues = ~inputs.is_first[..., None]
        action = inputs.previous_action
        if isinstance(self.action, DiscreteSpec):
            action = jax.nn.one_hot(action, self.action.num_actions, dtype=features.dtype)
        else:
            action = action.reshape(*action.shape[:2], -1)
            if isinstance(self.action, MultiDiscreteSpec):
                # One-hot of each element, one after another.
                counts = np.array(self.action.counts)
                choices = np.concatenate([*map(np.arange, counts)])
                action = (
                    action[..., np.repeat(np.arange(len(counts)), counts)] == choices[None, None]
                )
            action = action.astype(features.dtype)
        reward = inputs.reward[..., None].astype(features.dtype)
        history = jnp.concatenate([action, reward], axis=-1)
        return jnp.concatenate([features, jnp.where(continues, history, 0)], axis=-1)


def from_config(config: Any, spec: EnvSpec, *, head: Callable[[], nn.Module]) -> Network:
    """The pure functions of a network of a `QNetworkConfig`, say. Raises as `view` does."""
    # Resolved here, because a configuration is read before the environment is known.
    torso, frame_stack = view(spec, config.torso, config.frame_stack)
    specs = tuple(leaf for _, leaf in spec.leaves())
    module = TorsoCoreHead(
        torso=torso,
        torso_sizes=config.torso_sizes,
        core=config.core,
        core_size=config.core_size,
        head=head,
        dtype=config.dtype,
        specs=specs,
        action=spec.action,
    )
    action = spec.action.array
    stacked_numbers = stacked_arrays(list(specs), torso)

    def initial_carry(batch_size: int) -> NetworkCarry:
        is_recurrent, is_stacked = config.core != "none", frame_stack > 1
        frames = [specs[number] for number in stacked_numbers] if is_stacked else []
        before = (batch_size, frame_stack - 1)
        return NetworkCarry(
            LSTM.initial_carry(config.core_size, batch_size) if is_recurrent else (),
            tuple(zeros_of(leaf, *before) for leaf in frames),
        )

    def init(key: Array) -> Tree:
        observation = spec.unflatten([zeros_of(leaf, 1, 1) for leaf in specs])
        previous_action = jnp.zeros((1, 1, *action.shape), action.dtype)
        inputs = NetworkInput(
            observation, previous_action, jnp.zeros((1, 1), jnp.float32), jnp.ones((1, 1), bool)
        )
        carry = initial_carry(1)
        leaves, _ = stacked(carry.frames, inputs)
        return module.init(key, carry.core, leaves, inputs)

    def unroll(
        params: Tree, carry: NetworkCarry, inputs: NetworkInput
    ) -> tuple[Tree, NetworkCarry]:
        chex.assert_rank([inputs.reward, inputs.is_first], 2)
        chex.assert_rank(inputs.previous_action, 2 + len(action.shape))
        chex.assert_type(inputs.is_first, bool)
        leaves, frames = stacked(carry.frames, inputs)
        output, core = module.apply(params, carry.core, leaves, inputs)
        return output, NetworkCarry(core=core, frames=frames)

    def stacked(
        previous: tuple[Array, ...], inputs: NetworkInput
    ) -> tuple[list[Array], tuple[Array, ...]]:
        # The observation's arrays with stacked frames, and those that the next call needs.
        seen = spec.flatten(inputs.observation)
        if not previous:
            return seen, ()
        kept = []
        for number, frames in zip(stacked_numbers, previous, strict=True):
            seen[number], frames = stack_frames(seen[number], frames, inputs.is_first)
            kept.append(frames)
        return seen, tuple(kept)

    return Network(init, initial_carry, unroll)


def zeros_of(leaf: ArraySpec, *batch: int) -> Array:
    """Zeros `[*batch, *shape]` of an observation's array."""
    # As arrays of experience have them: without 64 bits.
    return jnp.zeros((*batch, *leaf.shape), jax.dtypes.canonicalize_dtype(leaf.dtype))
