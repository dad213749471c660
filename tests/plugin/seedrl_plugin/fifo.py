"""A first-in-first-out queue of unrolls, each of them one page and trained exactly once."""

import functools
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from seedrl.errors import ConfigError
from seedrl.replay.experience import Batch, Experience, Memory
from seedrl.types import Sequence


@dataclass(frozen=True, kw_only=True)
class QueueConfig:
    """Each device keeps up to `capacity` unrolls until they are trained."""

    capacity: int = 64

    def steps_of_page(self, window):
        return window.length

    def check(self, window, **sizes): ...

    def build(self, window, *, page, initial_priorities, scale):
        batch, capacity = scale.batch_per_device, self.capacity
        if capacity < batch + scale.training_slots:
            raise ConfigError("replay.capacity: expected a batch and a page of each slot")
        init = functools.partial(jax.tree.map, lambda x: jnp.zeros((capacity, *x.shape), x.dtype))
        memory = Memory(init, _insert, _sample, lambda state, places, priorities: state)
        draw, index = np.zeros(batch, np.int32), functools.partial(QueueIndex, capacity, batch)
        return Experience(memory, index, Turns(batch), draw)


def _insert(state, pages, places):
    return jax.tree.map(lambda pool, new: pool.at[places].set(new, mode="drop"), state, pages)


def _sample(state, draw, key, largest):
    steps = jax.tree.map(lambda pool: jnp.swapaxes(pool[draw], 0, 1), state.steps)
    carry = jax.tree.map(lambda pool: pool[draw], state.carry)
    return Batch(Sequence(steps, carry), jnp.ones(draw.shape), ())


class QueueIndex:
    """Which unrolls wait in a shard, oldest first."""

    def __init__(self, capacity, batch):
        self._capacity, self._batch = capacity, batch
        self._waiting, self.num_inserted = deque(), 0

    num_sequences = property(lambda self: len(self._waiting))
    fill = property(lambda self: len(self._waiting) / self._capacity)

    def has_room(self, num_pages):
        return len(self._waiting) + num_pages <= self._capacity

    def plan(self, streams):
        is_ours = np.asarray(streams) >= 0
        places = (self.num_inserted + np.cumsum(is_ours) - 1) % self._capacity
        self._waiting.extend(places[is_ours].tolist())
        self.num_inserted += int(is_ours.sum())
        return np.where(is_ours, places, self._capacity).astype(np.int32)  # the end: not stored

    def end_stream(self, stream): ...

    def draw(self):
        return np.array([self._waiting.popleft() for _ in range(self._batch)], np.int32)

    def state(self):
        return {"num_inserted": self.num_inserted, "waiting": list(self._waiting)}

    def restore(self, state):
        self.num_inserted, self._waiting = state["num_inserted"], deque(state["waiting"])


class Turns(NamedTuple):
    """Learning takes every batch that is there; acting continues until the next one is, too."""

    batch: int
    waiting: int = 0
    may_learn = lambda self: self.waiting >= self.batch  # noqa: E731
    is_ready = property(may_learn)
    may_act = lambda self: self.waiting < 2 * self.batch  # noqa: E731
    holds = lambda self, num_sequences: self._replace(waiting=min(num_sequences))  # noqa: E731
    took = lambda self: self._replace(waiting=self.waiting - self.batch)  # noqa: E731
    acted = applied = restored = lambda self, *_: self
    counts = metrics = lambda self: {}
