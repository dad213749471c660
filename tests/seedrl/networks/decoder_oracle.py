"""A decoder in float64 numpy: a token, a head and a row at a time, as the papers write it."""

import functools
from typing import Any

import jax
import numpy as np

from seedrl.networks import decoder
from seedrl.networks.decoder import DecoderConfig


def random_params(config: DecoderConfig, seed: int = 0) -> Any:
    """Parameters of which each matters: norms are not 1, LoRA and the value head are not 0."""
    random = np.random.default_rng(seed)

    def drawn(path: Any, leaf: Any) -> np.ndarray:
        numbers = random.normal(size=leaf.shape)
        if path[-1].key == "scale":
            numbers = 1 + 0.3 * numbers
        elif path[-1].key in ("embedding", "head"):
            numbers *= 0.5
        else:
            numbers /= np.sqrt(leaf.shape[-2]) if leaf.ndim > 1 else 1
        return numbers.astype(np.float32)

    return jax.tree.map_with_path(drawn, _shapes(config))


@functools.cache
def _shapes(config: DecoderConfig) -> Any:
    return jax.eval_shape(functools.partial(decoder.init, config), jax.random.key(0))


def float64(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), tree)


def outputs(config: DecoderConfig, params: Any, ids: Any) -> tuple[np.ndarray, np.ndarray]:
    """Logits `[T, V]` and values `[T]` after each of `ids [T]`, of float64 parameters."""
    stream = [params["embedding"][token] for token in ids]
    for number in range(config.layers):
        layer = jax.tree.map(lambda leaf, number=number: leaf[number], params["layers"])
        seen = [_norm(config, layer["attention_norm"], x) for x in stream]
        mixed = _attended(config, layer, seen)
        for t, m in enumerate(mixed):
            x = stream[t] + _linear(config, layer["output"], m)
            y = _norm(config, layer["ffn_norm"], x)
            gate = _linear(config, layer["gate"], y)
            hidden = gate / (1 + np.exp(-gate)) * _linear(config, layer["up"], y)
            stream[t] = x + _linear(config, layer["down"], hidden)
    last = np.stack([_norm(config, params["norm"], x) for x in stream])
    head = params["embedding" if config.tied else "head"]
    value = last @ params["value"]["kernel"][:, 0] + params["value"]["bias"][0]
    return last @ head.T, value


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def _linear(config: DecoderConfig, layer: Any, x: np.ndarray) -> np.ndarray:
    matrix = layer["kernel"]
    if config.lora_rank:
        matrix = matrix + config.lora_alpha / config.lora_rank * layer["lora_a"] @ layer["lora_b"]
    return x @ matrix


def _norm(config: DecoderConfig, layer: Any, x: np.ndarray) -> np.ndarray:
    return layer["scale"] * x / np.sqrt(np.mean(x * x) + config.norm_eps)


def _attended(config: DecoderConfig, layer: Any, seen: list[np.ndarray]) -> list[np.ndarray]:
    dim, per_group = config.head_dim, config.heads // config.kv_heads

    def heads(name: str, x: np.ndarray, position: int | None) -> np.ndarray:
        found = _linear(config, layer[name], x).reshape(-1, dim)
        if position is None:
            return found
        # Su et al. 2021: pairs as complex numbers, turned by position times their frequency.
        pairs = found[:, : dim // 2] + 1j * found[:, dim // 2 :]
        frequency = config.rope_theta ** (-2 * np.arange(dim // 2) / dim)
        turned = pairs * np.exp(1j * position * frequency)
        return np.concatenate([turned.real, turned.imag], axis=1)

    keys = [heads("key", x, t) for t, x in enumerate(seen)]
    values = [heads("value", x, None) for x in seen]
    mixed = []
    for t, x in enumerate(seen):
        rows = []
        for head, query in enumerate(heads("query", x, t)):
            group = head // per_group
            scores = np.array([query @ keys[s][group] for s in range(t + 1)]) / np.sqrt(dim)
            weights = np.exp(log_softmax(scores))
            rows.append(sum(w * values[s][group] for s, w in enumerate(weights)))
        mixed.append(np.concatenate(rows))
    return mixed
