"""The BoxNetwork: a Gaussian actor and twin critics, flax modules as pure functions."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from seedrl.errors import ConfigError
from seedrl.networks.torsos import MLP, ObservationTorso, is_encoded
from seedrl.rl.tanh_gaussian import TanhGaussian
from seedrl.specs import ArraySpec, EnvSpec
from seedrl.types import Array, Tree

_NUM_CRITICS = 2


class BoxNetwork(NamedTuple):
    """A policy over actions of a box, and the values of such actions, as pure functions.

    Both see one observation at a time: there is no carry. D is the size of the box.

    Attributes:
      init_actor: `key -> actor params`.
      init_critics: `key -> critic params`, of both critics.
      policy: `(actor params, observation [N, ...]) -> TanhGaussian` with leaves `[N, D]`.
      q_values: `(critic params, observation [N, ...], action [N, D]) -> [2, N] float32`, those of
        each critic.
    """

    init_actor: Callable[[Array], Tree]
    init_critics: Callable[[Array], Tree]
    policy: Callable[[Tree, Tree], TanhGaussian]
    q_values: Callable[[Tree, Tree, Array], Array]


class GaussianActor(nn.Module):
    """Observations -> `TanhGaussian` with leaves `[N, D] float32`.

    The last layer begins a hundredth as large as usual: at first every action of the box is about
    as likely as any other, whatever is observed.
    """

    torso: str
    sizes: Sequence[int]
    specs: Sequence[ArraySpec]
    num_actions: int
    log_std_range: tuple[float, float]
    dtype: str = "float32"

    @nn.compact
    def __call__(self, leaves: Sequence[Array]) -> TanhGaussian:
        """`leaves` are `[N, *shape]` in wire order."""
        features = ObservationTorso(self.torso, self.sizes, self.specs, self.dtype)(leaves)
        small = nn.initializers.variance_scaling(1e-4, "fan_in", "truncated_normal")
        outputs = nn.Dense(2 * self.num_actions, dtype=self.dtype, kernel_init=small)(features)
        mean, log_std = jnp.split(outputs.astype(jnp.float32), 2, axis=-1)
        return TanhGaussian(mean, jnp.clip(log_std, *self.log_std_range))


class Critic(nn.Module):
    """Observations and actions `[N, D]` -> Q-values `[N] float32`."""

    torso: str
    sizes: Sequence[int]
    specs: Sequence[ArraySpec]
    dtype: str = "float32"

    @nn.compact
    def __call__(self, leaves: Sequence[Array], action: Array) -> Array:
        """`leaves` are `[N, *shape]` in wire order."""
        features = ObservationTorso(self.torso, (), self.specs, self.dtype)(leaves)
        inputs = jnp.concatenate([features, action.astype(features.dtype)], axis=-1)
        hidden = MLP(self.sizes, self.dtype, name="dense")(inputs)
        return nn.Dense(1, dtype=self.dtype, name="q")(hidden)[..., 0].astype(jnp.float32)


def build_network(config: Any, spec: EnvSpec) -> BoxNetwork:
    """The pure functions that a `BoxNetworkConfig` asks for; see its `build`."""
    specs = tuple(leaf for _, leaf in spec.leaves())
    torso = _torso(config.torso, spec)
    num_actions = math.prod(spec.action.array.shape)
    actor = GaussianActor(
        torso,
        config.actor_sizes,
        specs,
        num_actions,
        (config.lowest_log_std, config.highest_log_std),
        config.dtype,
    )
    critic = Critic(torso, config.critic_sizes, specs, config.dtype)
    example = [jnp.zeros((1, *leaf.shape), _dtype(leaf)) for leaf in specs]
    return BoxNetwork(
        init_actor=lambda key: actor.init(key, example),
        init_critics=functools.partial(_init_critics, critic, example, num_actions),
        policy=functools.partial(_policy, actor, spec),
        q_values=functools.partial(_q_values, critic, spec),
    )


def _init_critics(critic: Critic, example: list[Array], num_actions: int, key: Array) -> Tree:
    action = jnp.zeros((1, num_actions))
    return tuple(critic.init(k, example, action) for k in jax.random.split(key, _NUM_CRITICS))


def _policy(actor: GaussianActor, spec: EnvSpec, params: Tree, observation: Tree) -> TanhGaussian:
    policy: Any = actor.apply(params, spec.flatten(observation))
    return TanhGaussian(*policy)


def _q_values(
    critic: Critic, spec: EnvSpec, params: tuple[Tree, ...], observation: Tree, action: Array
) -> Array:
    chex.assert_rank(action, 2)
    leaves = spec.flatten(observation)
    q_values: list[Array] = [critic.apply(one, leaves, action) for one in params]
    return jnp.stack(q_values)


def _dtype(leaf: ArraySpec) -> str:
    # As arrays of experience have them: without 64 bits.
    return str(jax.dtypes.canonicalize_dtype(leaf.dtype))


def _torso(torso: str, spec: EnvSpec) -> str:
    leaves = [leaf for _, leaf in spec.leaves()]
    if torso == "auto":
        return "nature" if any(is_encoded(leaf, "nature") for leaf in leaves) else "mlp"
    if torso != "mlp" and not any(is_encoded(leaf, torso) for leaf in leaves):
        found = (f"{path} {leaf.dtype}{list(leaf.shape)}" for path, leaf in spec.leaves())
        raise ConfigError(
            f"network.torso: {torso!r} expected an image (uint8 of rank 2 or 3), the observation "
            f'has {", ".join(found)}; leave it at "auto", which follows the observation'
        )
    return torso
