"""Rows of a KV cache that generate tokens side by side: continuous batching.

Each slot owns a row. At each tick a row reads one token of its turn or samples one, until it
samples the end or meets a limit. Other rows do not wait for it: a program ticks over all rows, of
which those that have nothing to do are masked, and returns as soon as one has ended. Only a long
turn is read in chunks, by a second program. Both are compiled for one shape.

A token's random number depends only on its rollout and its place: whichever row samples it, next
to whichever others, the same parameters sample the same tokens.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from seedrl.agents.token_agent import ENVIRONMENT, POLICY, padding
from seedrl.networks import decoder
from seedrl.networks.decoder import DecoderConfig, KVCache
from seedrl.replay.index import tree_bytes
from seedrl.rl import tokens
from seedrl.specs import TokensSpec
from seedrl.types import Array, StepType, StoredStep, Tree

# Tokens of a chunk. A row reads one if it owes more than half of it, else token by token: ticks
# happen anyway, and with few rows in it a chunk costs as much as many ticks.
_CHUNK = 64
# Rows that read a chunk together.
_READERS = 8
# Most ticks of one call, while no row waits for its environment: each call costs the host time.
_TICKS = 8


_prefill = jax.jit(decoder.prefill, static_argnums=0, donate_argnums=2)


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=2)
def _tick(
    network: DecoderConfig,
    end: int,
    cache: KVCache,
    params: Tree,
    key: Array,
    ints: Array,
    temperature: Array,
    most: Array,
) -> tuple[KVCache, Array, Array]:
    """Ticks until a row has ended. Consumes the cache.

    Args:
      end: the id that ends a completion.
      ints: `[5 + K, S] int32`, of each slot the place of the next token that is read, the number of
        tokens that are known, whether it ticks, the rollout, the place that no token reaches, and
        the known ones of K ids from that place on.
      temperature: `[S] float32`.
      most: ticks, at most K.

    Returns the cache, the number of ticks, and `[2, K, S] int32`: the ids sampled at each tick, or
    -1, and the bits of their log mu.
    """
    starts, known, ticks, rollouts, limits = ints[:5]
    ahead, live = ints[5:], ticks > 0

    def goes_on(loop: tuple[Tree, ...]) -> Array:
        _, tick, _, is_open, _ = loop
        return (tick < most) & jnp.all(is_open == live)

    def one_tick(loop: tuple[Tree, ...]) -> tuple[Tree, ...]:
        cache, tick, last, is_open, found = loop
        places = starts + tick
        ids = jnp.where(places < known, ahead[tick], last)
        cache, logits = decoder.decode(
            network, params, cache._replace(lengths=places), ids, is_open
        )
        sampled, log_mu = _drawn(key, rollouts, places + 1, logits, temperature)
        samples = is_open & (places + 1 >= known)
        bits = jax.lax.bitcast_convert_type(log_mu, jnp.int32)
        found = found.at[:, tick].set(jnp.stack([jnp.where(samples, sampled, -1), bits]))
        has_ended = samples & ((sampled == end) | (places + 2 >= limits))
        return cache, tick + 1, sampled, is_open & ~has_ended, found

    # One array of results: one copy to the host.
    found = jnp.full((2, *ahead.shape), -1, jnp.int32)
    loop = (cache, jnp.int32(0), starts, live, found)
    cache, tick, _, _, found = jax.lax.while_loop(goes_on, one_tick, loop)
    return cache, tick, found


def _drawn(
    key: Array, rollouts: Array, places: Array, logits: Array, temperature: Array
) -> tuple[Array, Array]:
    own = jax.vmap(functools.partial(jax.random.fold_in, key))(rollouts)
    keys = jax.vmap(jax.random.fold_in)(own, places)
    ids, log_mu = jax.vmap(tokens.sample)(keys, logits[:, None], temperature[:, None])
    return ids[:, 0], log_mu[:, 0]


class TokenGenerator:
    """The rows of some slots and their transcripts. Owned by its acting thread.

    A row's transcript is what it has read and sampled. Its first `fed` tokens are in the cache; the
    one that was sampled last is not, until the next one is wanted.

    Attributes:
      is_live: `[S] bool`, rows with a turn that is not answered yet.
      num_sampled: tokens that were sampled so far.
      version, num_ticks: of the last call: of its parameters, and how many ticks it had.
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
        self._network, self._sizes, self._context = network, sizes, network.context
        num_rows = len(temperature)
        # A row may owe a token that it has sampled, and a turn.
        self._has_chunks = sizes.longest_turn + 1 > _CHUNK // 2
        self._cache = jax.device_put(decoder.empty_cache(network, num_rows), device)
        self._key = jax.device_put(key, device)
        self._temperature = jax.device_put(np.asarray(temperature, np.float32), device)
        # The transcripts as they are stored, `[S, context]`, and what is written of them, by name.
        self._steps = padding(num_rows, self._context)
        self._ids, self._versions = self._steps.action, self._steps.version
        self._sources, self._log_mu = self._steps.extras
        self._rewards = self._steps.timestep.reward
        self._lengths, self._fed, self._starts, self._limits = np.zeros((4, num_rows), np.int32)
        self._rollouts = np.zeros(num_rows, np.int32)
        self._is_cut = np.zeros(num_rows, np.bool_)
        self.is_live = np.zeros(num_rows, np.bool_)
        self.num_sampled = self.version = self.num_ticks = 0
        # Of the ticks on the device: their number, their results, and the rows that take those.
        self._found: list[Array]
        self._in_flight = np.zeros(num_rows, np.bool_)

    @property
    def cache_bytes(self) -> int:
        """Bytes of the KV cache; for its owner."""
        return tree_bytes(self._cache)

    def begin(self, row: int, rollout: int) -> None:
        """Forgets the row's transcript; `rollout` decides the random numbers of the next one."""
        self._lengths[row] = self._fed[row] = self._starts[row] = 0
        for leaf in (self._ids, self._versions, self._sources, self._log_mu, self._rewards):
            leaf[row] = 0
        self._rollouts[row] = rollout % 2**31
        self._is_cut[row] = self.is_live[row] = self._in_flight[row] = False

    def ask(self, row: int, ids: np.ndarray) -> bool:
        """Appends a turn, which the row answers from now on; False if there is no room for that."""
        start = int(self._lengths[row])
        stop = start + len(ids)
        if not len(ids) or stop >= self._context:
            self._is_cut[row] = True
            return False
        self._ids[row, start:stop], self._sources[row, start:stop] = ids, ENVIRONMENT
        self._lengths[row] = self._starts[row] = stop
        self._limits[row] = min(stop + self._sizes.longest_completion, self._context)
        self.is_live[row] = True
        return True

    def reward(self, row: int, reward: float) -> None:
        """Adds what the last completion has earned."""
        self._rewards[row, self._lengths[row] - 1] += reward

    def completion(self, row: int) -> np.ndarray:
        """The ids of the last answer, `[n] int32`: a view."""
        return self._ids[row, self._starts[row] : self._lengths[row]]

    def rollout(self, row: int) -> StoredStep:
        """The row's transcript, leaves `[context]`, as `token_agent` describes it: a copy."""
        steps: StoredStep = jax.tree.map(lambda leaf: leaf[row].copy(), self._steps)
        last = self._lengths[row] - 1
        steps.timestep.step_type[0] = StepType.FIRST
        steps.timestep.step_type[last:] = StepType.LAST
        steps.timestep.discount[last] = self._is_cut[row]
        # Padding is as old as the last token, so that it shows no lag of its own.
        steps.version[last:] = steps.version[last]
        return steps

    def num_open(self, row: int) -> int:
        """Tokens that the row's rollout has sampled so far."""
        return int(np.count_nonzero(self._sources[row] == POLICY))

    def start(self, params: Tree, version: int) -> None:
        """Starts ticks on the device, at each of which every live row reads or samples a token.

        One tick, or more if all rows are live: until one has ended.
        """
        self.version = version
        if self._has_chunks:
            owed = np.where(self.is_live, self._lengths - self._fed, 0)
            readers = np.flatnonzero(owed > _CHUNK // 2).astype(np.int32)
            for start in range(0, len(readers), _READERS):
                self._read_chunks(params, readers[start : start + _READERS])
        self._decode(params, _TICKS if self.is_live.all() else 1)
        self._in_flight = self.is_live.copy()

    def _decode(self, params: Tree, most: int) -> None:
        places = np.minimum(self._fed + np.arange(_TICKS)[:, None], self._context - 1)
        ahead = self._ids[np.arange(len(self._ids)), places]
        own = np.stack([self._fed, self._lengths, self.is_live, self._rollouts, self._limits])
        ints = np.concatenate([own, ahead], dtype=np.int32)
        arguments = self._cache, params, self._key, ints, self._temperature, np.int32(most)
        self._cache, *self._found = _tick(self._network, self._sizes.end, *arguments)

    @property
    def is_done(self) -> bool:
        """True if the device has computed the ticks."""
        return bool(self._found[1].is_ready())

    def finish(self) -> list[int]:
        """Waits for the ticks; returns rows that have answered.

        A row that `begin` has reset since the start is left out.
        """
        self.num_ticks, found = int(self._found[0]), np.asarray(self._found[1])
        rows = np.flatnonzero(self._in_flight)
        self._read(rows, self._fed[rows] + np.arange(self.num_ticks)[:, None])
        self._fed[rows] += self.num_ticks
        ended: list[int] = []
        for ids, bits in found[:, : self.num_ticks].swapaxes(0, 1):
            own = rows[ids[rows] >= 0]
            ended += self._append(own, ids[own], bits[own].view(np.float32))
        return ended

    def _read_chunks(self, params: Tree, rows: np.ndarray) -> None:
        starts = self._fed[rows]
        # The last token of a turn is left to `decode`, which samples the next one.
        counts = np.minimum(self._lengths[rows] - 1 - starts, _CHUNK)
        places = starts[:, None] + np.arange(_CHUNK)
        ids = self._ids[rows[:, None], np.minimum(places, self._context - 1)]
        unused = (0, _READERS - len(rows))  # others read nothing
        chunks = np.pad(ids, (unused, (0, 0))), np.pad(counts, unused), np.pad(rows, unused)
        cache = self._cache._replace(lengths=self._fed.copy())  # the device may read it later
        self._cache, _ = _prefill(self._network, params, cache, *chunks)
        self._read(rows[:, None], places, np.arange(_CHUNK) < counts[:, None])
        self._fed[rows] += counts

    def _read(self, rows: np.ndarray, places: np.ndarray, is_read: Any = True) -> None:
        # Those tokens of turns are in the cache now; a sampled one keeps its version.
        places = np.minimum(places, self._context - 1)
        is_turn = is_read & (self._sources[rows, places] == ENVIRONMENT)
        if is_turn.any():
            rows = np.broadcast_to(rows, places.shape)
            self._versions[rows[is_turn], places[is_turn]] = self.version

    def _append(self, rows: np.ndarray, ids: np.ndarray, log_mu: np.ndarray) -> list[int]:
        places = self._lengths[rows]
        self._ids[rows, places], self._sources[rows, places] = ids, POLICY
        self._log_mu[rows, places], self._versions[rows, places] = log_mu, self.version
        self._lengths[rows] = lengths = places + 1
        self.num_sampled += len(rows)
        is_end = ids == self._sizes.end
        is_cut = ~is_end & (lengths >= self._limits[rows])
        self._is_cut[rows] |= is_cut
        ended = rows[is_end | is_cut]
        self.is_live[ended] = False
        return [int(row) for row in ended]

    def warm_up(self, params: Tree) -> None:
        """Compiles every program, by running it on padding."""
        if self._has_chunks:
            self._read_chunks(params, np.zeros(0, np.int32))
        self._decode(params, 1)
