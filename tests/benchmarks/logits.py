"""Logits of SmolLM2-135M, ours and llama.cpp's, of the same file.

    python -m tests.benchmarks.logits PYTHON

PYTHON is an interpreter with llama-cpp-python, which is none of ours. llama.cpp multiplies
quantised matrices with activations that it quantises too; ours are float32. So it also computes
with a copy of the file whose matrices are float32. The difference between its two results is the
tolerance of its quantisation. Ends with 1 if ours differ from its float32 result by more than
LARGEST, or from its quantised result by more than the tolerance and LARGEST.

Measured: 8.4e-5 from float32; 1.04 (mean 0.131) from quantised, as large as the tolerance.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import jax
import numpy as np

from seedrl.networks import decoder, weights

LARGEST = 1e-3  # of any log-probability, in nats
_TEXT = (
    "The reinforcement learning agent sends its actions to the environment, which answers with "
    "a reward and the next observation. In 1992, Watkins proved that Q-learning converges. "
    "def add(a, b):\n    return a + b\n\nQuestion: what is 17 + 25? Answer: 42."
)


def main(python: str) -> int:
    config, params = weights.read(weights.SMOLLM2)
    with tempfile.TemporaryDirectory() as folder:
        quantised = weights.path_of(weights.SMOLLM2)
        exact = Path(folder) / "float32.gguf"
        _write_float32(quantised, exact)
        theirs = [_logits(python, file, Path(folder)) for file in (quantised, exact)]
    ids = theirs[0]["ids"]
    ours = np.asarray(jax.jit(decoder.unroll, static_argnums=0)(config, params, ids[None]))[0]
    found, of_quantised, of_exact = (
        np.asarray(jax.nn.log_softmax(logits))
        for logits in (ours, *(each["logits"] for each in theirs))
    )
    print(f"{len(ids)} tokens, {config.vocabulary} log-probabilities each")
    exact_difference = _report("ours - llama.cpp in float32", found, of_exact)
    quantised_difference = _report("ours - llama.cpp quantised", found, of_quantised)
    tolerance = _report("llama.cpp in float32 - quantised", of_exact, of_quantised)
    is_equal = exact_difference <= LARGEST and quantised_difference <= tolerance + LARGEST
    return 0 if is_equal else 1


def _report(name: str, left: np.ndarray, right: np.ndarray) -> float:
    difference = np.abs(left - right)
    kl = np.mean(np.sum(np.exp(left) * (left - right), axis=-1))
    same = np.mean(left.argmax(-1) == right.argmax(-1))
    largest = float(difference.max())
    print(
        f"{name:34} largest {largest:.2e}  mean {difference.mean():.2e}  KL {kl:.2e}  "
        f"same likeliest token {100 * same:.0f} %"
    )
    return largest


def _logits(python: str, file: Path, folder: Path) -> dict[str, np.ndarray]:
    out = folder / "logits.npz"
    script = Path(__file__).with_name("llama_logits.py")
    subprocess.run([python, script, file, _TEXT, out], check=True, timeout=600)
    with np.load(out) as arrays:
        return {name: arrays[name] for name in arrays.files}


def _write_float32(source: Path, target: Path) -> None:
    # The same file with the same numbers, of which none is quantised.
    import gguf

    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, "llama")
    for name, field in reader.fields.items():
        if name == "general.architecture" or name.startswith("GGUF."):
            continue
        kinds = [kind for kind in field.types if kind is not gguf.GGUFValueType.ARRAY]
        is_array = len(kinds) < len(field.types)
        kind = gguf.GGUFValueType.ARRAY if is_array else kinds[0]
        writer.add_key_value(name, field.contents(), kind, sub_type=kinds[0] if is_array else None)
    for tensor in reader.tensors:
        numbers = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        writer.add_tensor(tensor.name, np.ascontiguousarray(numbers, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: {__doc__}")
    sys.exit(main(sys.argv[1]))
