"""What a run with LoRA has changed, and whether its export has the same logits.

    python docs/results/smollm2/check.py START RUN EXPORTED

START and RUN are directories of `seedrl pretrain` and `seedrl train`, EXPORTED is the directory of
`seedrl export RUN --safetensors EXPORTED`.
"""

import hashlib
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np

from seedrl import checkpoints, stored_arrays
from seedrl.config_io import load
from seedrl.networks import decoder, weights
from seedrl.types import Tree


def main(start: Path, run: Path, exported: Path) -> int:
    network = load(run / "config.json").agent.network
    shapes = jax.eval_shape(lambda key: decoder.init(network, key), jax.random.key(0))
    before, after = (_params(each, shapes) for each in (start, run))
    names = [jax.tree_util.keystr(path) for path, _ in jax.tree.leaves_with_path(shapes)]
    pairs = zip(names, jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
    changed = [name for name, old, new in pairs if not np.array_equal(old, new)]
    is_lora_alone = changed == [name for name in names if "lora" in name]
    print(f"{len(changed)} of {len(names)} arrays changed; LoRA's and no others: {is_lora_alone}")
    for name, params in (("start", before), ("run", after)):
        print(f"SHA-256 of the others, {name}: {_digest(params)}")

    plain, merged = weights.read(exported)
    ids = np.random.default_rng(0).integers(network.vocabulary, size=(4, network.context))
    ours, theirs = (
        np.asarray(jax.jit(decoder.unroll, static_argnums=0)(config, params, ids.astype(np.int32)))
        for config, params in ((network, after), (plain, merged))
    )
    difference = np.abs(ours - theirs).max()
    print(f"largest logit {np.abs(ours).max():.1f}, largest difference {difference:.1e}")
    return 0 if is_lora_alone and difference < 1e-3 else 1


def _params(folder: Path, shapes: Tree) -> Tree:
    checkpoint = checkpoints.choose(folder, parts=checkpoints.PARAMS)
    return stored_arrays.read_tree(checkpoint.path, {"params": shapes})["params"]


def _digest(params: Tree) -> str:
    total = hashlib.sha256()
    for path, leaf in jax.tree.leaves_with_path(params):
        if not _is_lora(path):
            total.update(np.asarray(leaf).tobytes())
    return total.hexdigest()[:16]


def _is_lora(path: tuple[Any, ...]) -> bool:
    return str(path[-1].key).startswith("lora")


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
