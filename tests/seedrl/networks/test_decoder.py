"""The decoder against numpy; acting with a cache against whole sequences."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedrl.errors import ConfigError
from seedrl.networks import decoder
from seedrl.networks.decoder import DecoderConfig, KVCache
from tests.gated import all_but
from tests.seedrl.networks.decoder_oracle import float64, log_softmax, outputs, random_params

CONFIG = DecoderConfig(
    vocabulary=11, layers=2, width=24, heads=6, kv_heads=2, ffn=20, context=16, rope_theta=50.0
)
CHUNK, SLOTS = 5, 4
unroll = jax.jit(decoder.unroll, static_argnums=0, static_argnames="value")
prefill = jax.jit(decoder.prefill, static_argnums=0)
decode = jax.jit(decoder.decode, static_argnums=0)


def random_ids(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, CONFIG.vocabulary, shape, np.int32)


# With fewer heads of keys, as by default here.
_UNTIED = {"tied": False, "lora_rank": 3}


@pytest.mark.parametrize(
    "changes",
    # Tied, with one head of keys: also tests/seedrl/agents/test_grpo.py.
    all_but([_UNTIED], [{}, _UNTIED, {"kv_heads": 1}, {"kv_heads": 6}]),
)
def test_the_decoder_agrees_with_numpy(changes: Any) -> None:
    config = dataclasses.replace(CONFIG, **changes)
    params, ids = random_params(config), random_ids(2, 9)
    logits, values = unroll(config, params, ids, value=True)
    for row in range(2):
        expected_logits, expected_values = outputs(config, float64(params), ids[row])
        np.testing.assert_allclose(logits[row], expected_logits, atol=1e-4)
        np.testing.assert_allclose(values[row], expected_values, atol=1e-4)
    if config.tied:
        np.testing.assert_array_equal(unroll(config, params, ids), logits)


@pytest.mark.gate  # jax's own: that it does not change a gradient
def test_the_gradient_is_the_same_if_blocks_are_computed_again() -> None:
    # One layer, as blocks are alike.
    config = dataclasses.replace(CONFIG, layers=1)
    params, ids = random_params(config), random_ids(2, 6)

    @functools.partial(jax.jit, static_argnums=0)
    def gradient(config: DecoderConfig) -> Any:
        return jax.grad(lambda params: jnp.sum(decoder.unroll(config, params, ids) ** 2))(params)

    computed_again = dataclasses.replace(config, remat=True)
    for each in (config, computed_again):
        program = jax.make_jaxpr(functools.partial(decoder.unroll, each))(params, ids)
        assert ("remat" in str(program)) == each.remat
    again = gradient(computed_again)
    compare = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-3)
    jax.tree.map(compare, gradient(config), again)


def poisoned(cache: KVCache) -> KVCache:
    """Beyond the tokens of a row: huge numbers, as nothing may come of them."""
    is_free = np.arange(CONFIG.context)[None] >= np.asarray(cache.lengths)[:, None]
    mask = is_free[None, :, :, None, None]
    keys, values = (
        jnp.where(mask, jnp.asarray(1e30, leaf.dtype), leaf) for leaf in (cache.keys, cache.values)
    )
    return KVCache(keys, values, cache.lengths)


@pytest.mark.parametrize(
    ("dtype", "bound"), [("float32", 1e-5), pytest.param("bfloat16", 0.1, marks=pytest.mark.gate)]
)
def test_acting_equals_whole_sequences_over_turns_and_resets(dtype: Any, bound: float) -> None:
    config = dataclasses.replace(CONFIG, dtype=dtype)
    params, random = random_params(config), np.random.default_rng(3)
    cache = poisoned(decoder.empty_cache(config, SLOTS))
    rows: list[list[int]] = [[] for _ in range(SLOTS)]
    seen: list[tuple[list[int], np.ndarray]] = []  # the ids of a row, and the logits after them
    num_resets = 0
    for _ in range(40):
        space = np.array([CONFIG.context - len(row) for row in rows])
        is_full = (space == 0) | (random.uniform(size=SLOTS) < 0.1)
        num_resets += is_full.sum()
        cache = poisoned(cache._replace(lengths=jnp.where(is_full, 0, cache.lengths)))
        rows = [[] if full else row for row, full in zip(rows, is_full, strict=True)]
        space = np.array([CONFIG.context - len(row) for row in rows])
        before = jax.tree.map(np.asarray, cache)
        if random.uniform() < 0.4:
            ids = random_ids(SLOTS, CHUNK, seed=random.integers(1000))
            counts = np.minimum(random.integers(0, CHUNK + 1, SLOTS), space).astype(np.int32)
            cache, logits = prefill(config, params, cache, ids, counts)
        else:
            ids = random_ids(SLOTS, 1, seed=random.integers(1000))
            active = (random.uniform(size=SLOTS) < 0.8) & (space > 0)
            counts = active.astype(np.int32)
            cache, logits = decode(config, params, cache, ids[:, 0], active)
        for slot, count in enumerate(counts):
            if count:
                rows[slot] = rows[slot] + ids[slot, :count].tolist()
                seen.append((rows[slot], np.asarray(logits[slot])))
            else:
                for old, new in zip(before[:2], cache[:2], strict=True):
                    np.testing.assert_array_equal(old[:, slot], new[:, slot])
        np.testing.assert_array_equal(cache.lengths, [len(row) for row in rows])
    assert num_resets > 10 and len(seen) > 90
    # What follows a row's end is another id each time.
    padded = np.stack([np.resize([*row, n % 7], CONFIG.context) for n, (row, _) in enumerate(seen)])
    whole = np.asarray(unroll(config, params, padded.astype(np.int32)))
    at_end = np.stack([whole[n, len(row) - 1] for n, (row, _) in enumerate(seen)])
    acted = np.stack([logits for _, logits in seen])
    assert np.abs(log_softmax(acted) - log_softmax(at_end)).max() <= bound
    assert whole.dtype == acted.dtype == np.float32


def test_float32_is_not_rounded_by_an_accelerator() -> None:
    config = dataclasses.replace(CONFIG, layers=1, lora_rank=2)
    cache, params = decoder.empty_cache(config, 2), random_params(config)
    ids = random_ids(2)
    acting = jax.make_jaxpr(functools.partial(decoder.decode, config))(
        params, cache, ids, np.ones(2, bool)
    )
    learning = jax.make_jaxpr(functools.partial(decoder.unroll, config, value=True))(
        params, ids[:, None]
    )
    for program in (str(acting), str(learning)):
        exact = program.count("precision=(Precision.HIGHEST, Precision.HIGHEST)")
        assert exact == program.count("dot_general[") > 20


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("network.width", {"width": 30}),
        ("network.heads", {"kv_heads": 4}),
        ("network.layers", {"layers": 0}),
        ("network.dtype", {"dtype": "float16"}),
    ],
)
def test_sizes_that_do_not_fit_are_refused(field: str, changes: Any) -> None:
    with pytest.raises(ConfigError, match=f"^{field}:"):
        dataclasses.replace(CONFIG, **changes)
