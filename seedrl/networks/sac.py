"""The networks of SAC: a memory, a Gaussian actor and twin critics, as pure functions."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from seedrl.networks.build import from_config, view
from seedrl.networks.network import Network
from seedrl.networks.torsos import MLP, ObservationTorso, uniform_dense
from seedrl.rl.distributions import TanhGaussian
from seedrl.specs import ArraySpec, EnvSpec
from seedrl.types import Array, Tree

_NUM_CRITICS = 2


class CriticParams(NamedTuple):
    """What learning values learns.

    Attributes:
      memory: of the one memory that both critics see, `()` without.
      twins: of both critics.
    """

    memory: Tree
    twins: Tree


class BoxNetwork(NamedTuple):
    """A policy over actions of a box, and the values of such actions, as pure functions.

    Both see one observation at a time, and beside it what the memory gives on its row: `[N, H]
    float32`, or `()` without a memory. D is the size of the box.

    Attributes:
      init_actor: `key -> actor params`.
      init_critics: `key -> CriticParams`.
      memory: a `Network` whose parameters `init_critics` makes, too: `CriticParams.memory`.
      policy: `(actor params, memory, observation [N, ...]) -> TanhGaussian`, leaves `[N, D]`.
      q_values: `(CriticParams, memory, observation [N, ...], action [N, D]) -> [2, N] float32`,
        those of each critic.
    """

    init_actor: Callable[[Array], Tree]
    init_critics: Callable[[Array], CriticParams]
    memory: Network
    policy: Callable[[Tree, Tree, Tree], TanhGaussian]
    q_values: Callable[[CriticParams, Tree, Tree, Array], Array]


# It has no parameters, carries nothing and gives nothing.
NO_MEMORY = Network(
    init=lambda key: (),
    initial_carry=lambda batch_size: (),
    unroll=lambda params, carry, inputs: ((), ()),
)


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
        """`leaves` are `[N, *shape]` in wire order, then what the memory gives, if there is one."""
        torso = ObservationTorso(self.torso, self.sizes, self.specs, self.dtype, is_uniform=True)
        features = torso(leaves)
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
        """For `leaves` see `GaussianActor`."""
        features = ObservationTorso(self.torso, (), self.specs, self.dtype)(leaves)
        inputs = jnp.concatenate([features, action.astype(features.dtype)], axis=-1)
        hidden = MLP(self.sizes, self.dtype, is_uniform=True, name="dense")(inputs)
        q_value = uniform_dense(hidden.shape[-1], 1, dtype=self.dtype, name="q")(hidden)
        return q_value[..., 0].astype(jnp.float32)


class Memory(nn.Module):
    """The head of a memory: what its core gives, as it is, `[T, B, H] float32`."""

    @nn.compact
    def __call__(self, features: Array) -> Array:
        """See the class."""
        return features


def build_network(config: Any, spec: EnvSpec) -> BoxNetwork:
    """The pure functions that a `BoxNetworkConfig` asks for; see its `build`."""
    torso = view(spec, config.torso, frame_stack=1).torso
    num_actions = math.prod(spec.action.array.shape)
    memory = _memory(config, torso, spec, num_actions)
    specs = [leaf for _, leaf in spec.leaves()]
    if memory is not NO_MEMORY:
        # Actor and critics see its output as one more array, after the observation's.
        specs.append(ArraySpec((config.core_size,), "float32"))
    actor = GaussianActor(
        torso,
        config.actor_sizes,
        tuple(specs),
        num_actions,
        (config.lowest_log_std, config.highest_log_std),
        config.dtype,
    )
    critic = Critic(torso, config.critic_sizes, tuple(specs), config.dtype)
    example = [jnp.zeros((1, *leaf.shape), _dtype(leaf)) for leaf in specs]
    return BoxNetwork(
        init_actor=lambda key: actor.init(key, example),
        init_critics=functools.partial(_init_critics, memory, critic, example, num_actions),
        memory=memory,
        policy=functools.partial(_policy, actor, spec),
        q_values=functools.partial(_q_values, critic, spec),
    )


def _memory(config: Any, torso: str, spec: EnvSpec, num_actions: int) -> Network:
    if config.core == "none":
        return NO_MEMORY
    settings = _MemorySettings(torso, config.core, config.core_size, config.dtype)
    return from_config(settings, spec, num_actions, head=Memory)


class _MemorySettings(NamedTuple):
    torso: str
    core: str
    core_size: int
    dtype: str
    torso_sizes: tuple[int, ...] = ()
    frame_stack: int = 1


def _init_critics(
    memory: Network, critic: Critic, example: list[Array], num_actions: int, key: Array
) -> CriticParams:
    action = jnp.zeros((1, num_actions))
    # Two critics that begin differently: the smaller is the value (Fujimoto et al. 2018).
    twins = tuple(critic.init(k, example, action) for k in jax.random.split(key, _NUM_CRITICS))
    return CriticParams(memory.init(jax.random.fold_in(key, _NUM_CRITICS)), twins)


def _policy(
    actor: GaussianActor, spec: EnvSpec, params: Tree, memory: Tree, observation: Tree
) -> TanhGaussian:
    policy: Any = actor.apply(params, _seen(spec, memory, observation))
    return TanhGaussian(*policy)


def _q_values(
    critic: Critic,
    spec: EnvSpec,
    params: CriticParams,
    memory: Tree,
    observation: Tree,
    action: Array,
) -> Array:
    chex.assert_rank(action, 2)
    leaves = _seen(spec, memory, observation)
    q_values: list[Array] = [critic.apply(one, leaves, action) for one in params.twins]
    return jnp.stack(q_values)


def _seen(spec: EnvSpec, memory: Tree, observation: Tree) -> list[Array]:
    # What the memory gives is one more array beside those of the observation.
    return [*spec.flatten(observation), *jax.tree.leaves(memory)]


def _dtype(leaf: ArraySpec) -> str:
    # As arrays of experience have them: without 64 bits.
    return str(jax.dtypes.canonicalize_dtype(leaf.dtype))
