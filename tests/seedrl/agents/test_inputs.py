"""Pieces hold the rows of their sequences, each with what a network has there."""

import dataclasses
import functools
from typing import Any

import jax
import numpy as np
import pytest

from seedrl.agents.inputs import cut_into_chunks, inputs_of_sequence
from seedrl.agents.ppo import PpoConfig
from seedrl.types import Sequence
from tests.seedrl.agents.actor_critics import NETWORK, SPEC, acted, jitted, window_of

T = 6
CONFIG = PpoConfig(network=NETWORK, unroll=5)


@functools.cache
def stream(core: Any) -> Any:
    network = dataclasses.replace(NETWORK, core=core)
    agent, params = jitted(dataclasses.replace(CONFIG, network=network).build(SPEC))
    return network.build(SPEC), params, acted(agent, params)


@functools.cache
def jitted_cut(core: str, chunk_steps: int) -> Any:
    """`params, sequence -> pieces, what the network says of them`; of T rows, of the sequence."""
    network, _, _ = stream(core)

    def cut(params: Any, sequence: Sequence) -> Any:
        pieces = cut_into_chunks(network, params, chunk_steps, sequence)
        carry, inputs = pieces.carry.network, inputs_of_sequence(pieces)
        return pieces, network.unroll(params, carry, inputs)[0]

    return jax.jit(cut)


@pytest.mark.parametrize("chunk_steps", [1, 2, 3])
@pytest.mark.parametrize("core", ["lstm", "none"])
def test_a_network_says_of_pieces_what_it_says_of_their_sequences(
    core: str, chunk_steps: int
) -> None:
    """Across resets, with stacked frames: of the parameters that cut them, with a core too."""
    _, params, streams = stream(core)
    sequence = window_of(streams, 2, T)
    pieces, said = jax.device_get(jitted_cut(core, chunk_steps)(params, sequence))
    in_order = jax.tree.map(
        lambda leaf: np.concatenate(np.split(leaf, T // chunk_steps, axis=1)), (pieces.steps, said)
    )
    _, expected = jitted_cut(core, T)(params, sequence)
    jax.tree.map(
        functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6),
        in_order,
        (sequence.steps, expected),
    )


def test_without_a_core_pieces_do_not_depend_on_who_cuts_them() -> None:
    """So all epochs see the very frames that acting saw."""
    _, params, streams = stream("none")
    sequence = window_of(streams, 2, T)
    other = jax.tree.map(lambda leaf: leaf + 1, params)
    by_one, by_other = (jitted_cut("none", 2)(p, sequence)[0] for p in (params, other))
    jax.tree.map(np.testing.assert_array_equal, by_one, by_other)
