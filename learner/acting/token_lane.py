"""Rows of a KV cache that generate tokens side by side: continuous batching.

Each slot owns a row. At each tick a row reads one token of its turn or samples one, until it
samples the end or meets a limit. Other rows do not wait for it: a tick is one program over all
rows, in which those that have nothing to do are masked. Only a long turn is read in chunks, by a
second program. Both are compiled for one shape.

A token's random number depends only on its rollout and its place: whichever row samples it, next
to whichever others, the same parameters sample the same tokens.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from seedrl.agents.token_agent import ENVIRONMENT, POLICY
from seedrl.networks import decoder
from seedrl.networks.decoder import DecoderConfig, KVCache
from seedrl.rl import tokens
from seedrl.specs import TokensSpec
from seedrl.types import Array, Tree

# Tokens of a chunk. A row reads one if it owes more than half of it, else token by token: ticks
# happen anyway, and with few rows in it a chunk costs as much as many ticks.
_CHUNK = 64
# Of all rows, so many read a chunk together.
_READERS = 8


class LanePrograms(NamedTuple):
    """Jitted programs over the rows of a cache, which they consume.

    Attributes:
      prefill: `(cache, params, ints [3 + C, R])`: each column is a row, the place of its next
        token, how many of C ids it reads, and these. Rows out of range are padding. The cache.
      decode: `(cache, params, key, ints [4, S], temperature [S])`: of each slot an id, its place,
        whether it is read, the rollout. The cache, and `[2, S] int32`: the ids sampled for the next
        places, and the bits of their log mu.
    """

    prefill: Callable[..., KVCache]
    decode: Callable[..., tuple[KVCache, Array]]


@functools.cache
def lane_programs(network: DecoderConfig) -> LanePrograms:
    """The programs of a network."""

    def prefill(cache: KVCache, params: Tree, ints: Array) -> KVCache:
        rows, starts, counts = ints[:3]
        part = KVCache(cache.keys[:, rows], cache.values[:, rows], starts)
        part, _ = decoder.prefill(network, params, part, ints[3:].T, counts)
        # Only what is new is written back.
        places = starts[:, None] + jnp.arange(len(ints) - 3, dtype=jnp.int32)[None]
        own = jnp.arange(len(rows), dtype=jnp.int32)[:, None]
        keys, values = (
            old.at[:, rows[:, None], places].set(new[:, own, places], mode="drop")
            for old, new in zip(cache[:2], part[:2], strict=True)
        )
        return KVCache(keys, values, cache.lengths)

    def decode(
        cache: KVCache, params: Tree, key: Array, ints: Array, temperature: Array
    ) -> tuple[KVCache, Array]:
        ids, places, is_read, rollouts = ints
        cache = cache._replace(lengths=places)
        cache, logits = decoder.decode(network, params, cache, ids, is_read > 0)
        sampled, log_mu = _drawn(key, rollouts, places + 1, logits, temperature)
        # One array: one copy to the host.
        return cache, jnp.stack([sampled, jax.lax.bitcast_convert_type(log_mu, jnp.int32)])

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
      version: of the parameters of the last tick.
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
        # A row may owe a token that it has sampled, and a turn.
        self._has_chunks = sizes.longest_turn + 1 > _CHUNK // 2
        self._cache = jax.device_put(decoder.empty_cache(network, num_rows), device)
        self._key = jax.device_put(key, device)
        self._temperature = jax.device_put(np.asarray(temperature, np.float32), device)
        self._ids = np.zeros((num_rows, self._context), np.int32)
        self._sources = np.zeros((num_rows, self._context), np.uint8)
        self._log_mu, self._rewards = np.zeros((2, num_rows, self._context), np.float32)
        self._versions = np.zeros((num_rows, self._context), np.int32)
        self._lengths, self._fed, self._starts = np.zeros((3, num_rows), np.int32)
        self._rollouts = np.zeros(num_rows, np.int32)
        self._is_cut = np.zeros(num_rows, np.bool_)
        self.is_live = np.zeros(num_rows, np.bool_)
        self.num_sampled = self.version = 0
        # Of the tick on the device: its result, and the rows that take a token from it.
        self._found: Array = np.zeros((2, num_rows), np.int32)
        self._samples = np.zeros(num_rows, np.bool_)

    def begin(self, row: int, rollout: int) -> None:
        """Forgets the row's transcript; `rollout` decides the random numbers of the next one."""
        self._lengths[row] = self._fed[row] = self._starts[row] = 0
        self._rollouts[row], self._rewards[row] = rollout, 0
        self._is_cut[row] = self.is_live[row] = self._samples[row] = False

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

    def start(self, params: Tree, version: int) -> None:
        """Starts a tick on the device: each live row reads or samples a token."""
        if self._has_chunks:
            owed = np.where(self.is_live, self._lengths - self._fed, 0)
            readers = np.flatnonzero(owed > _CHUNK // 2)
            for start in range(0, len(readers), _READERS):
                self._prefill(params, version, readers[start : start + _READERS])
        ids = self._ids[np.arange(len(self._fed)), self._fed]
        ints = np.stack([ids, self._fed, self.is_live, self._rollouts])
        self._cache, self._found = self._programs.decode(
            self._cache, params, self._key, ints, self._temperature
        )
        rows = np.flatnonzero(self.is_live)
        self._read(rows, self._fed[rows], version)
        self._samples, self.version = self.is_live & (self._fed == self._lengths), version

    def finish(self) -> list[int]:
        """Waits for the tick; returns rows that have answered.

        Rows that have begun anew since its start have no part in it.
        """
        rows = np.flatnonzero(self._samples)
        ids, bits = np.asarray(self._found)[:, rows]
        return self._append(rows, ids, bits.view(np.float32))

    def _prefill(self, params: Tree, version: int, rows: np.ndarray) -> None:
        starts = self._fed[rows]
        # The last token of a turn is left to `decode`, which samples the next one.
        counts = np.minimum(self._lengths[rows] - 1 - starts, _CHUNK)
        ints = np.zeros((3 + _CHUNK, _READERS), np.int32)
        ints[0] = len(self._lengths)  # out of range
        places = starts[:, None] + np.arange(_CHUNK)
        own = ints[:, : len(rows)]
        own[:3] = rows, starts, counts
        own[3:] = self._ids[rows[:, None], np.minimum(places, self._context - 1)].T
        self._cache = self._programs.prefill(self._cache, params, ints)
        is_read = np.arange(_CHUNK) < counts[:, None]
        self._read(np.repeat(rows, counts), places[is_read], version)

    def _read(self, rows: np.ndarray, places: np.ndarray, version: int) -> None:
        # Those tokens are in the cache now; a sampled one keeps its version.
        is_turn = self._sources[rows, places] == ENVIRONMENT
        self._versions[rows[is_turn], places[is_turn]] = version
        self._fed[rows] = places + 1

    def _append(self, rows: np.ndarray, ids: np.ndarray, log_mu: np.ndarray) -> list[int]:
        places = self._lengths[rows]
        self._ids[rows, places], self._sources[rows, places] = ids, POLICY
        self._log_mu[rows, places], self._versions[rows, places] = log_mu, self.version
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
        if self._has_chunks:
            ints = np.full((3 + _CHUNK, _READERS), num_rows, np.int32)
            ints[1:] = 0
            self._cache = self._programs.prefill(self._cache, params, ints)
        ints = np.zeros((4, num_rows), np.int32)
        self._cache, _ = self._programs.decode(
            self._cache, params, self._key, ints, self._temperature
        )
