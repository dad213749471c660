"""Commands of `seedrl` that are run to their end, and what they have written."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jax

from seedrl import checkpoints, config_io, run_files, stored_arrays
from seedrl.exit_codes import ExitCode
from seedrl.networks import decoder
from seedrl.types import Tree

_ROOT = Path(__file__).parents[2]
_DEADLINE_SECONDS = 1800.0


def train(name: str, seed: int, *flags: str) -> list[dict[str, Any]]:
    """The lines of `metrics.jsonl` of a run that reaches its target or misses it."""
    with tempfile.TemporaryDirectory(prefix="seedrl-run-") as folder:
        workdir = Path(folder) / "run"
        _seedrl("train", name, "--seed", str(seed), "--workdir", str(workdir), *flags)
        return [json.loads(line) for line in (workdir / run_files.METRICS).read_text().splitlines()]


def rounds(lines: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The rounds of evaluation but confirmations, which play the same parameters again."""
    return [each for each in lines if each["kind"] == "evaluation" and not each["is_confirmation"]]


def warm_start(name: str, seed: int, *, until_loss: float, workdir: Path) -> Tree:
    """Pretrains a token policy in the folder, which is made, down to a loss; its parameters."""
    words = ("--seed", str(seed), "--until-loss", str(until_loss), "--workdir", str(workdir))
    _seedrl("pretrain", name, *words)
    found = checkpoints.latest(workdir / "checkpoints")
    assert found is not None
    network = config_io.load(name).agent.network
    shapes = jax.eval_shape(lambda key: decoder.init(network, key), jax.random.key(0))
    return stored_arrays.read_tree(found.path, {"params": shapes})["params"]


def _seedrl(*words: str) -> None:
    command = [sys.executable, "-m", "learner.cli.main", *words]
    done = subprocess.run(
        command, cwd=_ROOT, capture_output=True, text=True, timeout=_DEADLINE_SECONDS
    )
    if done.returncode not in (ExitCode.OK, ExitCode.TARGET_MISSED):
        raise RuntimeError(
            f"seedrl {' '.join(words)}: exit code {done.returncode}: {done.stderr[-2000:]}"
        )
