"""A Llama-style decoder: one definition acts token by token and trains on whole sequences.

Pre-norm blocks of grouped-query attention (Ainslie et al. 2023) with rotary positions (Su et al.
2021) and SwiGLU (Shazeer 2020), with RMSNorm (Zhang and Sennrich 2019), as in Llama 2 and 3.

`prefill` and `decode` read a KV cache and add to it; `unroll` needs none. All three are the same
module, so the same parameters give the same logits (up to 1e-5 in float32). They are pure: jit them
with `config` static, and donate the cache.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from seedrl.errors import ConfigError
from seedrl.fields import NonNegativeInt, PositiveFloat, PositiveInt, check_fields
from seedrl.networks.config import Precision
from seedrl.types import Array, Tree


@dataclass(frozen=True, kw_only=True)
class DecoderConfig:
    """A decoder's sizes. The defaults are for tasks of some dozens of characters.

    Attributes:
      vocabulary: number of token ids.
      layers: number of blocks.
      width: size of the residual stream, a multiple of `2 * heads`.
      heads: attention heads of queries, a multiple of `kv_heads`.
      kv_heads: attention heads of keys and values.
      ffn: hidden units of the feed-forward network of a block.
      context: the longest sequence, in tokens; the size of a row of the cache.
      rope_theta: base of the rotary positions' wavelengths.
      norm_eps: added to the mean square in RMSNorm.
      tied: logits use the embedding's matrix instead of one of their own.
      dtype: dtype of what matrix products multiply, and of the cache. Their sums, parameters and
        all else stay float32.
      remat: blocks are computed again for the gradient: a fraction of the memory, for a third more
        time.
      lora_rank: rank of trainable additions to the blocks' matrices, which are then frozen; 0 has
        none and trains everything (Hu et al. 2021, https://arxiv.org/abs/2106.09685).
      lora_alpha: additions are scaled by `lora_alpha / lora_rank`.
    """

    vocabulary: PositiveInt = 128
    layers: PositiveInt = 3
    width: PositiveInt = 128
    heads: PositiveInt = 4
    kv_heads: PositiveInt = 2
    ffn: PositiveInt = 384
    context: PositiveInt = 128
    rope_theta: PositiveFloat = 10_000.0
    norm_eps: PositiveFloat = 1e-5
    tied: bool = True
    dtype: Precision = "float32"
    remat: bool = False
    lora_rank: NonNegativeInt = 0
    lora_alpha: PositiveFloat = 16.0

    def __post_init__(self) -> None:
        check_fields("network.", self)
        for name, divisor in (("width", 2 * self.heads), ("heads", self.kv_heads)):
            if (number := getattr(self, name)) % divisor:
                raise ConfigError(
                    f"network.{name}: expected a multiple of {divisor} for {self.heads} heads and "
                    f"{self.kv_heads} kv_heads, got {number}"
                )

    @property
    def head_dim(self) -> int:
        return self.width // self.heads

    @property
    def products(self) -> dict[str, Any]:
        """How matrices are multiplied: with float32 sums, and of float32 numbers exactly."""
        # By default a GPU rounds float32 to 10 bits (TF32) and a TPU to 7: acting and learning,
        # two programs, would round differently.
        precision = jax.lax.Precision.HIGHEST if self.dtype == "float32" else None
        return {"precision": precision, "preferred_element_type": jnp.float32}


class KVCache(NamedTuple):
    """Keys and values of the tokens so far, a row for each slot. Beyond `lengths`: anything.

    So a row whose length is set to 0 is empty.
    """

    keys: Array  # `[layers, slots, context, kv_heads, head_dim]` of the config's dtype, rotated
    values: Array  # likewise
    lengths: Array  # `[slots] int32`, tokens in each row


def init(config: DecoderConfig, key: Array) -> Tree:
    """Parameters, float32: nested dicts; those of blocks are stacked, `[layers, ...]`."""
    ids = jnp.zeros((1, 1), jnp.int32)
    return _Decoder(config).init(key, ids, ids, empty_cache(config, 1, 0), value=True)["params"]


def empty_cache(config: DecoderConfig, slots: int, context: int | None = None) -> KVCache:
    """A cache without tokens; `context` in place of the config's."""
    context = config.context if context is None else context
    shape = (config.layers, slots, context, config.kv_heads, config.head_dim)
    keys, values = (jnp.zeros(shape, config.dtype) for _ in range(2))
    return KVCache(keys, values, jnp.zeros(slots, jnp.int32))


def prefill(
    config: DecoderConfig,
    params: Tree,
    cache: KVCache,
    ids: Array,
    counts: Array,
    rows: Array | None = None,
) -> tuple[KVCache, Array]:
    """Appends the first `counts[i]` of `ids[i]` to row i; the logits after the last of them.

    Args:
      ids: `[slots, chunk] int32`.
      counts: `[slots] int32`, 0 to chunk. A row with 0 is unchanged, and its logits mean nothing.
        A row never exceeds `config.context`: the caller sees to it, what is beyond is not stored.
      rows: `[R] int32`, if not all are read: then `ids` and `counts` are of these. Each occurs once
        with a count above 0.

    Returns the cache, and `[slots, vocabulary] float32`.
    """
    chex.assert_rank([ids, counts], [2, 1])
    chex.assert_type([ids, counts, cache.lengths], jnp.int32)
    part = cache
    if rows is None:
        rows = jnp.arange(ids.shape[0], dtype=jnp.int32)
    else:
        part = KVCache(cache.keys[:, rows], cache.values[:, rows], cache.lengths[rows])
    offsets = jnp.arange(ids.shape[1], dtype=jnp.int32)[None]
    positions = part.lengths[:, None] + offsets
    last = jnp.maximum(counts - 1, 0)
    logits, added = _Decoder(config).apply({"params": params}, ids, positions, part, last)
    # Of what is not appended the place is out of range, and dropped.
    places = jnp.where(offsets < counts[:, None], positions, config.context)
    # Once for all layers, after them: in the scan over layers the whole cache would be copied.
    keys, values = (
        old.at[:, rows[:, None], places].set(new, mode="drop")
        for old, new in zip(cache[:2], added, strict=True)
    )
    return KVCache(keys, values, cache.lengths.at[rows].add(counts)), logits


def decode(
    config: DecoderConfig, params: Tree, cache: KVCache, ids: Array, active: Array
) -> tuple[KVCache, Array]:
    """Appends one token to each row where `active [slots] bool` holds: `prefill` of one id.

    `ids` is `[slots] int32`. Returns the cache, and logits `[slots, vocabulary] float32`.
    """
    return prefill(config, params, cache, ids[:, None], active.astype(jnp.int32))


def unroll(config: DecoderConfig, params: Tree, ids: Array, value: bool = False) -> Any:
    """Logits after each token of whole sequences: `[B, T] int32` -> `[B, T, vocabulary] float32`.

    Causal, so padding at the end does no harm. With `value` also V after each token, `[B, T]
    float32`: logits, values.
    """
    chex.assert_rank(ids, 2)
    positions = jnp.broadcast_to(jnp.arange(ids.shape[1], dtype=jnp.int32), ids.shape)
    past = empty_cache(config, len(ids), 0)
    return _Decoder(config).apply({"params": params}, ids, positions, past, value=value)[0]


def is_trained(config: DecoderConfig, params: Tree) -> Tree:
    """A tree like `params` of bool: with LoRA only its leaves and the value head are trained."""

    def trains(path: tuple[Any, ...], _: Array) -> bool:
        return not config.lora_rank or path[-1].key.startswith("lora") or path[0].key == "value"

    return jax.tree.map_with_path(trains, params)


def with_frozen(config: DecoderConfig, params: Tree) -> Tree:
    """`params`, without a gradient where they are not trained."""
    return jax.tree.map(
        lambda leaf, trained: leaf if trained else jax.lax.stop_gradient(leaf),
        params,
        is_trained(config, params),
    )


class _Linear(nn.Module):
    """x W, float32, and with LoRA + (alpha / rank) x A B. B is 0 at first: nothing is added."""

    features: int
    config: DecoderConfig
    scale: float = 1.0

    @nn.compact
    def __call__(self, inputs: Array) -> Array:
        rank, size = self.config.lora_rank, inputs.shape[-1]
        initializer = nn.initializers.variance_scaling(self.scale, "fan_in", "normal")
        kernel = self.param("kernel", initializer, (size, self.features), jnp.float32)
        outputs = _product(self.config, inputs, kernel)
        if rank:
            down = self.param("lora_a", nn.initializers.lecun_normal(), (size, rank), jnp.float32)
            up = self.param("lora_b", nn.initializers.zeros, (rank, self.features), jnp.float32)
            added = _product(self.config, _product(self.config, inputs, down), up)
            outputs += added * (self.config.lora_alpha / rank)
        return outputs


def _product(config: DecoderConfig, left: Array, right: Array) -> Array:
    return jnp.matmul(left.astype(config.dtype), right.astype(config.dtype), **config.products)


class _Block(nn.Module):
    """Attention, then the feed-forward network, each added to the residual stream."""

    config: DecoderConfig

    @nn.compact
    def __call__(
        self, hidden: Array, cached: tuple[Array, Array], angles: Array, is_past: Array
    ) -> tuple[Array, tuple[Array, Array]]:
        """`hidden [B, T, W]`; the keys and values of these tokens too, `[B, T, K, D]`."""
        config = self.config
        kv_size, dim = config.kv_heads * config.head_dim, config.head_dim
        batch = hidden.shape[:2]
        # As GPT-2: what all blocks add together is as large as for one.
        small = 1 / (2 * config.layers)
        seen = nn.RMSNorm(epsilon=config.norm_eps, name="attention_norm")(hidden)
        query = _Linear(config.width, config, name="query")(seen)
        key = _Linear(kv_size, config, name="key")(seen).reshape(*batch, config.kv_heads, dim)
        new = _Linear(kv_size, config, name="value")(seen).reshape(*batch, config.kv_heads, dim)
        query = _rotated(query.reshape(*batch, config.heads, dim), angles)
        query, key, new = (x.astype(config.dtype) for x in (query, _rotated(key, angles), new))
        mixed = _attention(config, query, key, new, cached, is_past).reshape(*batch, config.width)
        hidden += _Linear(config.width, config, small, name="output")(mixed)
        seen = nn.RMSNorm(epsilon=config.norm_eps, name="ffn_norm")(hidden)
        gate = _Linear(config.ffn, config, name="gate")(seen)
        up = _Linear(config.ffn, config, name="up")(seen)
        hidden += _Linear(config.width, config, small, name="down")(jax.nn.silu(gate) * up)
        return hidden, (key, new)


class _Decoder(nn.Module):
    config: DecoderConfig

    @nn.compact
    def __call__(
        self,
        ids: Array,
        positions: Array,
        cache: KVCache,
        last: Array | None = None,
        value: bool = False,
    ) -> tuple[Any, tuple[Array, Array]]:
        """Output for `ids [B, T]` after what `cache` holds, and their keys and values.

        Of each row only at the place `last [B]`, if that is given.
        """
        config = self.config
        shape = (config.vocabulary, config.width)
        embedding = self.param("embedding", nn.initializers.normal(0.02), shape, jnp.float32)
        hidden = embedding[ids]
        places = jnp.arange(cache.keys.shape[2], dtype=jnp.int32)
        is_past = places[None] < cache.lengths[:, None]
        blocks = nn.scan(
            # In a scan nothing can be merged with the second computation.
            nn.remat(_Block, prevent_cse=False) if config.remat else _Block,
            variable_axes={"params": 0},
            split_rngs={"params": True},
            in_axes=(0, nn.broadcast, nn.broadcast),
            length=config.layers,
        )
        layers = blocks(config, name="layers")
        cached = (cache.keys, cache.values)
        hidden, added = layers(hidden, cached, _angles(config, positions), is_past)
        if last is not None:
            # Before the largest matrix of a small model, not after it.
            hidden = jnp.take_along_axis(hidden, last[:, None, None], axis=1)[:, 0]
        hidden = nn.RMSNorm(epsilon=config.norm_eps, name="norm")(hidden)
        head = embedding
        if not config.tied:
            head = self.param("head", nn.initializers.normal(0.02), shape, jnp.float32)
        logits = jnp.einsum(
            "...w,vw->...v",
            hidden.astype(config.dtype),
            head.astype(config.dtype),
            **config.products,
        )
        if not value:
            return logits, added
        precision, zeros = jax.lax.Precision.HIGHEST, nn.initializers.zeros
        values = nn.Dense(1, kernel_init=zeros, precision=precision, name="value")(hidden)
        return (logits, values[..., 0]), added


def _angles(config: DecoderConfig, positions: Array) -> Array:
    # `[B, T, D / 2] float32`.
    exponents = jnp.arange(0, config.head_dim, 2, dtype=jnp.float32) / config.head_dim
    return positions[..., None].astype(jnp.float32) * config.rope_theta ** -exponents[None, None]


def _rotated(heads: Array, angles: Array) -> Array:
    # `[B, T, H, D]`: element i and element i + D / 2 turn together, as in the files of Hugging
    # Face; those of Meta and llama.cpp have neighbours.
    cos, sin = jnp.cos(angles)[:, :, None], jnp.sin(angles)[:, :, None]
    left, right = jnp.split(heads, 2, axis=-1)
    return jnp.concatenate([left * cos - right * sin, right * cos + left * sin], axis=-1)


def _attention(
    config: DecoderConfig,
    query: Array,
    key: Array,
    value: Array,
    cached: tuple[Array, Array],
    is_past: Array,
) -> Array:
    # `[B, T, H, D]`: of the tokens in the cache, where `is_past [B, C]`, and of these up to itself.
    batch, num_tokens, _, dim = query.shape
    grouped = query.reshape(batch, num_tokens, key.shape[2], -1, dim)

    def scores_of(keys: Array, is_seen: Array) -> Array:
        scores = jnp.einsum("btkgd,bskd->bkgts", grouped, keys, **config.products)
        return jnp.where(is_seen, scores / math.sqrt(dim), -jnp.inf)

    def mixed(weights: Array, values: Array) -> Array:
        weights = weights.astype(values.dtype)
        return jnp.einsum("bkgts,bskd->btkgd", weights, values, **config.products)

    causal = jnp.tril(jnp.ones((num_tokens, num_tokens), bool))
    scores = scores_of(key, causal[None, None, None])
    keys, values = cached
    # The new tokens beside the cache, not in it: nothing of it is copied.
    past = scores_of(keys, is_past[:, None, None, None])
    weights = jax.nn.softmax(jnp.concatenate([past, scores], axis=-1))
    before, among = jnp.split(weights, [is_past.shape[1]], axis=-1)
    return mixed(before, values) + mixed(among, value)
