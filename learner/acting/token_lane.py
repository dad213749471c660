"""Rows of a KV cache that generate tokens side by side: continuous batching.

Each slot owns a row. A row reads a turn (prefill) and then samples one token at each tick, until it
samples the end or meets a limit. Other rows do not wait for it: one tick is one program over all
rows, in which those that have nothing to do are masked. Programs are compiled for few shapes.

A token's random number depends only on its rollout and its place: whichever row samples it, next
to whichever others, the same parameters sample the same tokens.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from seedrl.agents.token_agent import ENVIRONMENT, POLICY
from seedrl.networks import decoder
from seedrl.networks.decoder import DecoderConfig, KVCache
from seedrl.rl import tokens
from seedrl.specs import TokensSpec
from seedrl.types import Array, Tree


class LanePrograms(NamedTuple):
    """Jitted programs over the rows of a cache, which they consume.

    Attributes:
      prefill: `(cache, params, key, ints [5 + C, R], temperature [R])`; each column of `ints` is a
        row, whether it is emptied first, how many of its ids count, rollout, place, C ids. Rows out
        of range are padding.
      decode: `(cache, params, key, ints [4, S], temperature [S])`: each slot's last id, whether it
        is active, rollout, place.

    Both return the cache, ids `[R or S] int32`, and log mu `[R or S] float32`.
    """

    prefill: Callable[..., tuple[KVCache, Array, Array]]
    decode: Callable[..., tuple[KVCache, Array, Array]]


@functools.cache
def lane_programs(network: DecoderConfig) -> LanePrograms:
    """The programs of a network."""

    def prefill(
        cache: KVCache, params: Tree, key: Array, ints: Array, temperature: Array
    ) -> tuple[KVCache, Array, Array]:
        rows, is_new, counts, rollouts, places = ints[:5]
        lengths = jnp.where(is_new > 0, 0, cache.lengths[rows])
        part = KVCache(cache.keys[:, rows], cache.values[:, rows], lengths)
        part, logits = decoder.prefill(network, params, part, ints[5:].T, counts)
        cache = KVCache(
            cache.keys.at[:, rows].set(part.keys, mode="drop"),
            cache.values.at[:, rows].set(part.values, mode="drop"),
            cache.lengths.at[rows].set(part.lengths, mode="drop"),
        )
        return cache, *_drawn(key, rollouts, places, logits, temperature)

    def decode(
        cache: KVCache, params: Tree, key: Array, ints: Array, temperature: Array
    ) -> tuple[KVCache, Array, Array]:
        last, active, rollouts, places = ints
        cache, logits = decoder.decode(network, params, cache, last, active > 0)
        return cache, *_drawn(key, rollouts, places, logits, temperature)

    return LanePrograms(jax.jit(prefill, donate_argnums=0), jax.jit(decode, donate_argnums=0))


def _drawn(
    key: Array, rollouts: Array, places: Array, logits: Array, temperature: Array
) -> tuple[Array, Array]:
    def draw(
        rollout: Array, place: Array, logits: Array, temperature: Array
    ) -> tuple[Array, Array]:
        own = jax.random.fold_in(jax.random.fold_in(key, rollout), place)
        ids, log_mu = tokens.sample(own, logits[None], temperature[None])
        return ids[0], log_mu[0]

    ids, log_mu = jax.vmap(draw)(rollouts, places, logits, temperature)
    return ids, log_mu


class Rollout(NamedTuple):
    """A dialogue so far, or a whole one: its tokens, `[n]`. Copies, on the host."""

    ids: np.ndarray  # int32
    sources: np.ndarray  # uint8
    log_mu: np.ndarray  # float32
    versions: np.ndarray  # int32
    rewards: np.ndarray  # float32, on the token that earned it
    is_cut: bool  # a length limit cut a completion, or left no room for a turn

    @property
    def num_sampled(self) -> int:
        """Tokens of the policy."""
        return int(np.count_nonzero(self.sources == POLICY))


class TokenLane:
    """The rows of some slots and their transcripts. Owned by its acting thread.

    A row's transcript is what it has read and sampled. Its first `fed` tokens are in the cache; the
    one that was sampled last is not, until the next one is wanted.

    Attributes:
      is_live: `[S] bool`, rows with a turn that is not answered yet.
      num_sampled: tokens that were sampled so far.
    """

    def __init__(
        self,
        network: DecoderConfig,
        sizes: TokensSpec,
        temperature: np.ndarray,
        key: Array,
        device: jax.Device,
    ):
        """`temperature [S] float32` of each row. Consumes the key."""
        self._programs, self._sizes, self._context = lane_programs(network), sizes, network.context
        num_rows = len(temperature)
        self._cache = jax.device_put(decoder.empty_cache(network, num_rows), device)
        self._key = jax.device_put(key, device)
        self._temperature = np.asarray(temperature, np.float32)
        self._chunks = _ladder(sizes.longest_turn + 1, least=16)
        self._widths = _ladder(num_rows, least=4)
        self._ids = np.zeros((num_rows, self._context), np.int32)
        self._sources = np.zeros((num_rows, self._context), np.uint8)
        self._log_mu, self._rewards = np.zeros((2, num_rows, self._context), np.float32)
        self._versions = np.zeros((num_rows, self._context), np.int32)
        self._lengths, self._fed, self._starts = np.zeros((3, num_rows), np.int32)
        self._rollouts = np.zeros(num_rows, np.int32)
        self._is_cut = np.zeros(num_rows, np.bool_)
        self.is_live = np.zeros(num_rows, np.bool_)
        self.num_sampled = 0

    def begin(self, row: int, rollout: int) -> None:
        """Forgets the row's transcript; `rollout` decides the random numbers of the next one."""
        self._lengths[row] = self._fed[row] = self._starts[row] = 0
        self._rollouts[row], self._is_cut[row], self.is_live[row] = rollout, False, False
        self._rewards[row] = 0

    def ask(self, row: int, ids: np.ndarray) -> bool:
        """Appends a turn, which the row answers from now on; False if there is no room for that."""
        start = int(self._lengths[row])
        stop = start + len(ids)
        if not len(ids) or stop >= self._context:
            self._is_cut[row] = True
            return False
        self._ids[row, start:stop], self._sources[row, start:stop] = ids, ENVIRONMENT
        self._log_mu[row, start:stop] = 0
        self._lengths[row] = self._starts[row] = stop
        self.is_live[row] = True
        return True

    def reward(self, row: int, reward: float) -> None:
        """Adds what the last completion has earned."""
        if self._lengths[row]:
            self._rewards[row, self._lengths[row] - 1] += reward

    def completion(self, row: int) -> np.ndarray:
        """The ids of the last answer, `[n] int32`: a view."""
        return self._ids[row, self._starts[row] : self._lengths[row]]

    def rollout(self, row: int) -> Rollout:
        """The row's transcript."""
        own = slice(int(self._lengths[row]))
        return Rollout(
            ids=self._ids[row, own].copy(),
            sources=self._sources[row, own].copy(),
            log_mu=self._log_mu[row, own].copy(),
            versions=self._versions[row, own].copy(),
            rewards=self._rewards[row, own].copy(),
            is_cut=bool(self._is_cut[row]),
        )

    def num_open(self, row: int) -> int:
        """Tokens that the row's rollout has sampled so far."""
        own = slice(int(self._lengths[row]))
        return int(np.count_nonzero(self._sources[row, own] == POLICY))

    def tick(self, params: Tree, version: int) -> list[int]:
        """Samples a token in each row that has read its turn; returns rows that have answered."""
        owed = self._lengths - self._fed
        # A row's first token is read where the row is emptied.
        reads = self.is_live & ((owed > 1) | (self._fed == 0))
        active = self.is_live & ~reads
        ended: list[int] = []
        if reads.any():
            ended += self._prefill(params, version, np.flatnonzero(reads))
        if active.any():
            ended += self._decode(params, version, active)
        return ended

    def _prefill(self, params: Tree, version: int, rows: np.ndarray) -> list[int]:
        owed = self._lengths[rows] - self._fed[rows]
        chunk = _fit(self._chunks, int(owed.max()))
        counts = np.minimum(owed, chunk)
        ints = np.zeros((5 + chunk, _fit(self._widths, len(rows))), np.int32)
        ints[0] = len(self._lengths)  # out of range
        own = ints[:, : len(rows)]
        fed = self._fed[rows]
        own[:5] = rows, fed == 0, counts, self._rollouts[rows], fed + counts
        places = fed[:, None] + np.arange(chunk)
        own[5:] = self._ids[rows[:, None], np.minimum(places, self._context - 1)].T
        temperature = np.zeros(ints.shape[1], np.float32)
        temperature[: len(rows)] = self._temperature[rows]
        ids, log_mu = self._run(self._programs.prefill, params, ints, temperature)
        for row, start, count in zip(rows, fed, counts, strict=True):
            own_places = slice(start, start + count)
            is_read = self._sources[row, own_places] == ENVIRONMENT
            self._versions[row, own_places][is_read] = version
        self._fed[rows] += counts
        is_read = counts == owed
        ids, log_mu = (array[: len(rows)][is_read] for array in (ids, log_mu))
        return self._append(rows[is_read], ids, log_mu, version)

    def _decode(self, params: Tree, version: int, active: np.ndarray) -> list[int]:
        ints = np.zeros((4, len(active)), np.int32)
        last = np.maximum(self._lengths - 1, 0)
        ints[:] = self._ids[np.arange(len(last)), last], active, self._rollouts, self._lengths
        ids, log_mu = self._run(self._programs.decode, params, ints, self._temperature)
        rows = np.flatnonzero(active)
        self._fed[rows] += 1
        return self._append(rows, ids[rows], log_mu[rows], version)

    def _run(
        self, program: Any, params: Tree, ints: np.ndarray, temperature: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        self._cache, ids, log_mu = program(self._cache, params, self._key, ints, temperature)
        return np.asarray(ids), np.asarray(log_mu)

    def _append(
        self, rows: np.ndarray, ids: np.ndarray, log_mu: np.ndarray, version: int
    ) -> list[int]:
        places = self._lengths[rows]
        self._ids[rows, places], self._sources[rows, places] = ids, POLICY
        self._log_mu[rows, places], self._versions[rows, places] = log_mu, version
        self._lengths[rows] = lengths = places + 1
        self.num_sampled += len(rows)
        is_end = ids == self._sizes.end
        is_long = lengths - self._starts[rows] >= self._sizes.longest_completion
        is_cut = ~is_end & (is_long | (lengths >= self._context))
        self._is_cut[rows] |= is_cut
        ended = rows[is_end | is_cut]
        self.is_live[ended] = False
        return [int(row) for row in ended]

    def warm_up(self, params: Tree) -> None:
        """Compiles every program, by running it on padding."""
        num_rows = len(self._lengths)
        for width in self._widths:
            for chunk in self._chunks:
                ints = np.zeros((5 + chunk, width), np.int32)
                ints[0] = num_rows
                self._run(self._programs.prefill, params, ints, np.zeros(width, np.float32))
        ints = np.zeros((4, num_rows), np.int32)
        self._run(self._programs.decode, params, ints, self._temperature)


def _ladder(largest: int, *, least: int) -> Sequence[int]:
    # Two sizes at most: each costs compilations.
    return sorted({largest, max(min(least, largest), -(-largest // 8))})


def _fit(sizes: Sequence[int], wanted: int) -> int:
    return next((size for size in sizes if size >= wanted), sizes[-1])
