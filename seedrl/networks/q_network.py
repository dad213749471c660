"""The Q-network: torso, recurrent core and head, behind the `Network` interface."""

import functools
from dataclasses import dataclass
from typing import Literal, NamedTuple

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from seedrl.networks.frame_stack import stack_frames
from seedrl.networks.heads import DuelingHead, QHead
from seedrl.networks.network import Network, NetworkInput
from seedrl.networks.recurrent import GRU, LSTM
from seedrl.networks.torsos import ObservationTorso, TorsoName, is_image
from seedrl.specs import ArraySpec, EnvSpec
from seedrl.types import Array, Tree


class QNetworkCarry(NamedTuple):
    """What a Q-network needs from before its first row; without leaves if it needs nothing.

    Attributes:
      core: the recurrent state, `[B, H] float32` leaves, or `()`.
      frames: for each image of the observation `[B, k - 1, *shape] uint8`, or `()`.
    """

    core: Tree
    frames: tuple[Array, ...]


@dataclass(frozen=True, kw_only=True)
class QNetworkConfig:
    """A Q-network. The defaults are those of R2D2 (Kapturowski et al. 2019, table 2, appendix).

    A recurrent core sees the torso's output, the previous executed action (one-hot) and the
    previous reward, both zeros on FIRST. The reward is raw, as in R2D2: scale rewards of thousands
    in the environment. Without a core, the head sees the torso's output alone.

    Attributes:
      torso: encoder of images; "mlp" flattens them.
      torso_sizes: dense layers after it, on all arrays of the observation together.
      core: recurrent core.
      core_size: its units.
      head_sizes: hidden layers of the head.
      dueling: whether value and advantages have streams of their own.
      frame_stack: frames that the torso sees at once, newest first; 1 stacks nothing.
      dtype: of matrix products and convolutions. Parameters, carry and Q-values stay float32.
    """

    torso: TorsoName = "nature"
    torso_sizes: tuple[int, ...] = (512,)
    core: Literal["lstm", "gru", "none"] = "lstm"
    core_size: int = 512
    head_sizes: tuple[int, ...] = (512,)
    dueling: bool = True
    frame_stack: int = 4
    dtype: Literal["float32", "bfloat16"] = "float32"

    def __post_init__(self) -> None:
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                expected = ", ".join(allowed)
                raise ValueError(
                    f"network.{name}: expected {expected}; got {getattr(self, name)!r}"
                )
        for name in ("core_size", "frame_stack"):
            if getattr(self, name) < 1:
                raise ValueError(f"network.{name}: expected at least 1, got {getattr(self, name)}")
        for name in ("torso_sizes", "head_sizes"):
            if any(size < 1 for size in getattr(self, name)):
                raise ValueError(f"network.{name}: expected sizes >= 1, got {getattr(self, name)}")

    def build(self, spec: EnvSpec) -> Network:
        """The network for environments of this spec.

        `unroll` gives Q-values `[T, B, A] float32`. Raises ValueError where an image is needed (a
        convolutional torso, frame stacking) and the observation has none.
        """
        specs = tuple(leaf for _, leaf in spec.leaves())
        if not any(map(is_image, specs)) and (self.torso != "mlp" or self.frame_stack > 1):
            found = (f"{path} {leaf.dtype}{list(leaf.shape)}" for path, leaf in spec.leaves())
            raise ValueError(
                f"network.torso {self.torso!r}, network.frame_stack {self.frame_stack}: expected "
                f"an image (uint8 of rank 2 or 3), the observation has {', '.join(found)}; "
                "set torso to 'mlp' and frame_stack to 1"
            )
        module = _QNetwork(self, specs, spec.num_actions)
        initial_carry = functools.partial(_initial_carry, self, specs)
        return Network(
            init=functools.partial(_init, module, spec, initial_carry(1)),
            initial_carry=initial_carry,
            unroll=functools.partial(_unroll, module, spec),
        )


_CHOICES = {
    "torso": ("mlp", "nature", "impala"),
    "core": ("lstm", "gru", "none"),
    "dtype": ("float32", "bfloat16"),
}


class _QNetwork(nn.Module):
    config: QNetworkConfig
    specs: tuple[ArraySpec, ...]
    num_actions: int

    @nn.compact
    def __call__(
        self, carry: Tree, leaves: list[Array], inputs: NetworkInput
    ) -> tuple[Array, Tree]:
        config, (num_rows, batch_size) = self.config, inputs.is_first.shape
        merged = [leaf.reshape(num_rows * batch_size, *leaf.shape[2:]) for leaf in leaves]
        torso = ObservationTorso(config.torso, config.torso_sizes, self.specs, config.dtype)
        features = torso(merged).reshape(num_rows, batch_size, -1)
        if config.core != "none":
            core = {"lstm": LSTM, "gru": GRU}[config.core]
            core_inputs = self._core_inputs(features, inputs)
            features, carry = core(config.core_size, config.dtype)(
                carry, core_inputs, inputs.is_first
            )
        head = DuelingHead if config.dueling else QHead
        return head(self.num_actions, config.head_sizes, config.dtype)(features), carry

    def _core_inputs(self, features: Array, inputs: NetworkInput) -> Array:
        continues = ~inputs.is_first[..., None]
        action = jax.nn.one_hot(inputs.previous_action, self.num_actions, dtype=features.dtype)
        reward = inputs.reward[..., None].astype(features.dtype)
        history = jnp.concatenate([action, reward], axis=-1)
        return jnp.concatenate([features, jnp.where(continues, history, 0)], axis=-1)


def _initial_carry(
    config: QNetworkConfig, specs: tuple[ArraySpec, ...], batch_size: int
) -> QNetworkCarry:
    core: Tree = ()
    if config.core == "lstm":
        core = LSTM.initial_carry(config.core_size, batch_size)
    elif config.core == "gru":
        core = GRU.initial_carry(config.core_size, batch_size)
    frames: tuple[Array, ...] = ()
    if config.frame_stack > 1:
        shapes = [spec.shape for spec in specs if is_image(spec)]
        num_previous = config.frame_stack - 1
        frames = tuple(jnp.zeros((batch_size, num_previous, *s), jnp.uint8) for s in shapes)
    return QNetworkCarry(core=core, frames=frames)


def _init(module: _QNetwork, spec: EnvSpec, carry: QNetworkCarry, key: Array) -> Tree:
    observation = [jnp.zeros((1, 1, *leaf.shape), leaf.dtype) for leaf in module.specs]
    inputs = NetworkInput(
        observation=spec.unflatten(observation),
        previous_action=jnp.zeros((1, 1), jnp.int32),
        reward=jnp.zeros((1, 1), jnp.float32),
        is_first=jnp.ones((1, 1), bool),
    )
    leaves, _ = _observed(module, spec, carry.frames, inputs)
    return module.init(key, carry.core, leaves, inputs)


def _unroll(
    module: _QNetwork, spec: EnvSpec, params: Tree, carry: QNetworkCarry, inputs: NetworkInput
) -> tuple[Array, QNetworkCarry]:
    chex.assert_rank([inputs.previous_action, inputs.reward, inputs.is_first], 2)
    chex.assert_type(inputs.is_first, bool)
    leaves, frames = _observed(module, spec, carry.frames, inputs)
    q_values, core = module.apply(params, carry.core, leaves, inputs)
    return q_values, QNetworkCarry(core=core, frames=frames)


def _observed(
    module: _QNetwork, spec: EnvSpec, previous: tuple[Array, ...], inputs: NetworkInput
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
