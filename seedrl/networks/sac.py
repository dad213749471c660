"""The networks of SAC: a memory, a Gaussian actor and twin critics, as pure functions."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from seedrl.networks.build import from_config, zeros_of
from seedrl.networks.heads import SMALL_KERNEL
from seedrl.networks.network import Network
from seedrl.networks.torsos import MLP, ObservationTorso, uniform_dense
from seedrl.observations import view
from seedrl.rl.distributions import TanhGaussian
from seedrl.specs import ArraySpec, EnvSpec
from seedrl.types import Array, Tree

_NUM_CRITICS = 2
# Of the std before tanh: the code of SAC's authors.
_LOG_STD_RANGE = (-20.0, 2.0)


class CriticParams(NamedTuple):
    """Parameters that the critics' loss learns."""

    memory: Tree  # of the one memory that both critics see, `()` without
    twins: Tree  # of both critics


class BoxNetwork(NamedTuple):
    """A policy over actions of a box, and the values of such actions, as pure functions.

    Both see one observation at a time, and the memory's output for its time step: `[N, H] float32`,
    or `()` without a memory. D is the size of the box.
    """

    init_actor: Callable[[Array], Tree]  # `key -> actor params`
    init_critics: Callable[[Array], CriticParams]  # `key -> CriticParams`
    memory: Network  # its parameters are `CriticParams.memory`
    # `(actor params, memory, observation [N, ...]) -> TanhGaussian`, leaves `[N, D]`.
    policy: Callable[[Tree, Tree, Tree], TanhGaussian]
    # `(CriticParams, memory, observation [N, ...], action [N, D]) -> [2, N] float32`: each one's.
    q_values: Callable[[CriticParams, Tree, Tree, Array], Array]


# Without parameters, recurrent state or output.
NO_MEMORY = Network(
    init=lambda key: (),
    initial_carry=lambda batch_size: (),
    unroll=lambda params, carry, inputs: ((), ()),
)


class GaussianActor(nn.Module):
    """Observations -> `TanhGaussian` with leaves `[N, D] float32`."""

    torso: str
    sizes: Sequence[int]
    specs: Sequence[ArraySpec]
    num_actions: int
    dtype: str = "float32"

    @nn.compact
    def __call__(self, leaves: Sequence[Array]) -> TanhGaussian:
        """`leaves` are `[N, *shape]` in wire order, then the memory's output, if there is one."""
        torso = ObservationTorso(self.torso, self.sizes, self.specs, self.dtype, is_uniform=True)
        features = torso(leaves)
        last = nn.Dense(2 * self.num_actions, dtype=self.dtype, kernel_init=SMALL_KERNEL)
        outputs = last(features)
        mean, log_std = jnp.split(outputs.astype(jnp.float32), 2, axis=-1)
        return TanhGaussian(mean, jnp.clip(log_std, *_LOG_STD_RANGE))


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
    """The head of a memory: the output of its core, as it is, `[T, B, H] float32`."""

    @nn.compact
    def __call__(self, features: Array) -> Array:
        return features


class _MemorySettings(NamedTuple):
    torso: str
    core: str
    core_size: int
    dtype: str
    torso_sizes: tuple[int, ...] = ()
    frame_stack: int = 1


def build_network(config: Any, spec: EnvSpec) -> BoxNetwork:
    """The pure functions that a `BoxNetworkConfig` asks for; see its `build`."""
    torso, _ = view(spec, config.torso, frame_stack=1)  # these networks stack no frames
    num_actions = math.prod(spec.action.array.shape)
    specs = [leaf for _, leaf in spec.leaves()]
    memory = NO_MEMORY
    if config.core != "none":
        settings = _MemorySettings(torso, config.core, config.core_size, config.dtype)
        memory = from_config(settings, spec, head=Memory)
        # Actor and critics see its output as one more array, after the observation's.
        specs.append(ArraySpec((config.core_size,), "float32"))
    actor = GaussianActor(torso, config.actor_sizes, tuple(specs), num_actions, config.dtype)
    critic = Critic(torso, config.critic_sizes, tuple(specs), config.dtype)
    example = [zeros_of(leaf, 1) for leaf in specs]

    def init_critics(key: Array) -> CriticParams:
        action = jnp.zeros((1, num_actions))
        # Two critics that begin differently: the smaller is the value (Fujimoto et al. 2018).
        twins = tuple(critic.init(k, example, action) for k in jax.random.split(key, _NUM_CRITICS))
        return CriticParams(memory.init(jax.random.fold_in(key, _NUM_CRITICS)), twins)

    def seen(memory: Tree, observation: Tree) -> list[Array]:
        return [*spec.flatten(observation), *jax.tree.leaves(memory)]

    def policy(params: Tree, memory: Tree, observation: Tree) -> TanhGaussian:
        found: Any = actor.apply(params, seen(memory, observation))
        return TanhGaussian(*found)

    def q_values(params: CriticParams, memory: Tree, observation: Tree, action: Array) -> Array:
        chex.assert_rank(action, 2)
        leaves = seen(memory, observation)
        found: list[Array] = [critic.apply(one, leaves, action) for one in params.twins]
        return jnp.stack(found)

    return BoxNetwork(
        init_actor=lambda key: actor.init(key, example),
        init_critics=init_critics,
        memory=memory,
        policy=policy,
        q_values=q_values,
    )
