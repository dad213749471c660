"""Sequences cut into pieces, so that minibatches hold rows of many of them."""

import jax
import jax.numpy as jnp

from seedrl.agents.network_inputs import AgentCarry, inputs_of_sequence
from seedrl.networks.network import Network
from seedrl.types import Array, Sequence, Tree


def cut_into_pieces(
    network: Network, params: Tree, piece_rows: int, sequence: Sequence
) -> Sequence:
    """`[T, B]` -> `[P, T / P * B]`: every P = `piece_rows` rows are a sequence of their own.

    Each begins with the carry that `network` has there: at the start of the sequence it is that of
    acting, and `params` bring it to the later pieces. Stacked frames are therefore what they were;
    a core, whose carry depends on parameters, begins each piece as if it were burnt in from the
    start of the sequence. No gradient goes from a piece to the one before it.

    Piece i of sequence b is at column i B + b.

    Args:
      network: of an agent whose carry is an `AgentCarry`.
      params: of the network.
      piece_rows: P, of which T must be a multiple.
      sequence: `[T, B]`.
    """
    num_rows = sequence.steps.timestep.reward.shape[0]
    num_pieces, rest = divmod(num_rows, piece_rows)
    assert not rest, (num_rows, piece_rows)
    if num_pieces == 1:
        return sequence
    rows, inputs = jax.tree.map(
        lambda leaf: leaf.reshape(num_pieces, piece_rows, *leaf.shape[1:]),
        (sequence.steps, inputs_of_sequence(sequence)),
    )

    def carry_after(carry: Tree, piece: Tree) -> tuple[Tree, Tree]:
        return network.unroll(params, carry, piece)[1], carry

    _, carries = jax.lax.scan(carry_after, sequence.carry.network, inputs)
    carry = AgentCarry(carries, inputs.previous_action[:, 0])
    return Sequence(
        steps=jax.tree.map(_as_columns, rows),
        carry=jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), carry),
    )


def _as_columns(leaf: Array) -> Array:
    """`[N, P, B, ...]` -> `[P, N B, ...]`."""
    leaf = jnp.moveaxis(leaf, 1, 0)
    return leaf.reshape(leaf.shape[0], -1, *leaf.shape[3:])
