"""What a network is shown when an agent acts on a row, and when it learns from a sequence."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from seedrl.networks.network import Network, NetworkInput
from seedrl.specs import ArraySpec
from seedrl.types import Array, Sequence, StepType, TimeStep, Tree


class AgentCarry(NamedTuple):
    """What an agent with a network needs from before a time step.

    Attributes:
      network: the network's carry.
      previous_action: `[B] int32`, the action executed on the step before; ignored on FIRST. Of a
        box `[B, *shape] float32`.
    """

    network: Tree
    previous_action: Array


_DISCRETE = ArraySpec((), "int32")


def initial_carry(network: Network, batch_size: int, action: ArraySpec = _DISCRETE) -> AgentCarry:
    """The carry at an episode's start, leaves `[B, ...]`; `action` is how one is stored."""
    previous_action = jnp.zeros((batch_size, *action.shape), action.dtype)
    return AgentCarry(network.initial_carry(batch_size), previous_action)


def inputs_of_row(carry: AgentCarry, timestep: TimeStep) -> NetworkInput:
    """An unroll of length 1, leaves `[1, B, ...]`, of a row with leaves `[B, ...]`."""
    inputs = NetworkInput(
        observation=timestep.observation,
        previous_action=carry.previous_action,
        reward=timestep.reward,
        is_first=timestep.step_type == StepType.FIRST,
    )
    one_row: NetworkInput = jax.tree.map(lambda leaf: jnp.expand_dims(leaf, 0), inputs)
    return one_row


def inputs_of_sequence(sequence: Sequence) -> NetworkInput:
    """All rows of a sequence `[T, B]` whose carry is an `AgentCarry`."""
    timestep, action = sequence.steps.timestep, sequence.steps.action
    return NetworkInput(
        observation=timestep.observation,
        previous_action=jnp.concatenate([sequence.carry.previous_action[None], action[:-1]]),
        reward=timestep.reward,
        is_first=timestep.step_type == StepType.FIRST,
    )


def unrolled_after_burn_in(
    network: Network, burn_in: int, params: Tree, sequence: Sequence
) -> Tree:
    """What a network gives of the rows of a sequence `[T, B]` from row `burn_in` on.

    The rows before, from the stored carry on, only make the carry that row `burn_in` begins with;
    no gradient goes through them.
    """
    inputs = inputs_of_sequence(sequence)
    carry = sequence.carry.network
    if burn_in:
        before = jax.tree.map(lambda leaf: leaf[:burn_in], inputs)
        _, carry = network.unroll(jax.lax.stop_gradient(params), carry, before)
    rows = jax.tree.map(lambda leaf: leaf[burn_in:], inputs)
    output, _ = network.unroll(params, jax.lax.stop_gradient(carry), rows)
    return output
