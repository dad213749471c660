"""A look at what learning draws, for a person: sequences that nobody learns from."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from learner.learning.device_mapping import MappedPrograms
from seedrl.replay.experience import Index
from seedrl.types import StoredStep, Tree


class Look(NamedTuple):
    """N sequences as an update would draw them, on the host.

    Attributes:
      steps: numpy leaves `[T, N, ...]`.
      about: what the replay knows of each: name -> `[N]`.
      streams: that each is from; -1 where that is not known.
      updates: applied by then.
    """

    steps: StoredStep
    about: Mapping[str, np.ndarray]
    streams: Sequence[int]
    updates: int


def compile_look(programs: MappedPrograms, shapes: Tree, draw: Tree, num_sequences: int) -> Any:
    """Compiles what `take_look` runs, without touching an array: for any thread.

    Args:
      programs: of learning.
      shapes: of the replay, `[n, ...]`.
      draw: an example of what the host draws.
      num_sequences: N; at most those of one device's batch.

    Raises ValueError for a replay whose draws the host decides: a look would take from it.
    """
    if jax.tree.leaves(draw):
        raise ValueError("this replay hands out what it draws: it cannot be looked into")
    shard = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((1, *leaf.shape[1:]), leaf.dtype), shapes
    )
    look: Any = programs.look
    return look.lower(shard, _key(), num_sequences).compile()


def take_look(
    compiled: Any,
    replay: Tree,
    index: Index,
    stream_of: Callable[[Any, int], int],
    updates: int,
) -> Look:
    """Draws from the first device's shard, and waits for it. For the thread that owns `replay`."""
    shard = jax.tree.map(lambda leaf: leaf.addressable_data(0), replay)
    batch, about = jax.device_get(compiled(shard, _key()))
    streams = [stream_of(index, int(place)) for place in batch.places]
    return Look(batch.sequence.steps, {**about, "weight": batch.weights}, streams, updates)


def _key() -> np.ndarray:
    """A random one: the learner's own keys decide what is learned."""
    return np.frombuffer(os.urandom(8), np.uint32)
