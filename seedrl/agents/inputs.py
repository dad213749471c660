"""Inputs of a network: of one time step when acting, of a sequence when learning."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from seedrl.networks.network import Network, NetworkInput
from seedrl.specs import ArraySpec
from seedrl.types import Array, Sequence, StepType, TimeStep, Tree


class AgentCarry(NamedTuple):
    """The state of an agent with a network from before a time step."""

    network: Tree  # the network's recurrent state, and stacked frames
    previous_action: Array  # `[B, ...]` as `ActionSpec.array`; ignored on FIRST


_DISCRETE = ArraySpec((), "int32")


def initial_carry(network: Network, batch_size: int, action: ArraySpec = _DISCRETE) -> AgentCarry:
    """The carry at an episode's start, leaves `[B, ...]`; `action` is how one is stored."""
    previous_action = jnp.zeros((batch_size, *action.shape), action.dtype)
    return AgentCarry(network.initial_carry(batch_size), previous_action)


def inputs_of_step(carry: AgentCarry, timestep: TimeStep) -> NetworkInput:
    """An unroll of length 1, leaves `[1, B, ...]`, of a time step with leaves `[B, ...]`."""
    inputs = NetworkInput(
        observation=timestep.observation,
        previous_action=carry.previous_action,
        reward=timestep.reward,
        is_first=timestep.step_type == StepType.FIRST,
    )
    one_step: NetworkInput = jax.tree.map(lambda leaf: jnp.expand_dims(leaf, 0), inputs)
    return one_step


def inputs_of_sequence(sequence: Sequence) -> NetworkInput:
    """All time steps of a sequence `[T, B]` whose carry is an `AgentCarry`."""
    timestep, action = sequence.steps.timestep, sequence.steps.action
    return NetworkInput(
        observation=timestep.observation,
        # Taken before the first step: its action precedes those of the sequence.
        previous_action=jnp.concatenate([sequence.carry.previous_action[None], action[:-1]]),
        reward=timestep.reward,
        is_first=timestep.step_type == StepType.FIRST,
    )


def unrolled_after_burn_in(
    network: Network, burn_in: int, params: Tree, sequence: Sequence
) -> Tree:
    """The network's output for a sequence `[T, B]` after its burn-in: `[T - burn_in, B]`.

    Source: Kapturowski et al. 2019, section 3.
    """
    inputs = inputs_of_sequence(sequence)
    carry = sequence.carry.network
    if burn_in:
        # Older parameters made the stored recurrent state; the burn-in brings it up to date. Its
        # time steps are unrolled only for the state that they end with.
        # The gradient of the burn-in stops here: at the parameters that unroll it, and again below
        # at the recurrent state that it hands over.
        before = jax.tree.map(lambda leaf: leaf[:burn_in], inputs)
        _, carry = network.unroll(jax.lax.stop_gradient(params), carry, before)
    after = jax.tree.map(lambda leaf: leaf[burn_in:], inputs)
    output, _ = network.unroll(params, jax.lax.stop_gradient(carry), after)
    return output


def cut_into_chunks(
    network: Network, params: Tree, chunk_steps: int, sequence: Sequence
) -> Sequence:
    """`[T, B]` -> `[P, T / P * B]`: every P = `chunk_steps` time steps become a sequence.

    Each chunk starts from the recurrent state that `network` has there: at the start of the
    sequence the one of acting, and `params` unroll it to the later chunks. So stacked frames are
    exact, and a recurrent core is as if burnt in from the start of the sequence. No gradient flows
    from a chunk to the one before it. Chunk i of sequence b is at column i B + b.
    """
    num_steps = sequence.steps.timestep.reward.shape[0]
    num_chunks, rest = divmod(num_steps, chunk_steps)
    assert not rest, (num_steps, chunk_steps)
    if num_chunks == 1:
        return sequence
    steps, inputs = jax.tree.map(
        lambda leaf: leaf.reshape(num_chunks, chunk_steps, *leaf.shape[1:]),
        (sequence.steps, inputs_of_sequence(sequence)),
    )

    def carry_after(carry: Tree, chunk: Tree) -> tuple[Tree, Tree]:
        return network.unroll(params, carry, chunk)[1], carry

    _, carries = jax.lax.scan(carry_after, sequence.carry.network, inputs)
    carry = AgentCarry(carries, inputs.previous_action[:, 0])
    return Sequence(
        steps=jax.tree.map(_as_columns, steps),
        carry=jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), carry),
    )


def _as_columns(leaf: Array) -> Array:
    # `[N, P, B, ...]` -> `[P, N B, ...]`.
    leaf = jnp.moveaxis(leaf, 1, 0)
    return leaf.reshape(leaf.shape[0], -1, *leaf.shape[3:])
