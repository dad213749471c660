"""Completions to 95 % right answers: the system against a synchronous reference.

`python -m tests.benchmarks.token_samples` takes two to three minutes a seed. Both start from
the same warm start and have the same task, network, batch and optimizer.
"""

import itertools
import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import jax

from envs_server.envs.token_tasks import reverse
from seedrl import checkpoints, config_io, stored_arrays
from seedrl.config import Config
from seedrl.fields import with_fields
from seedrl.networks import decoder
from seedrl.programs.command_line import read
from seedrl.types import Tree
from tests.benchmarks.token_reference import Reference, Round, samples_to

PROG = "python -m tests.benchmarks.token_samples"
_TARGET = 0.95
_MOST_RATIO = 1.1
_INTERVAL = 2048
_EPISODES = 200
_MOST_SAMPLES = 100_000
_ROOT = Path(__file__).parents[2]
_FLAGS = {
    "evaluation.interval_steps": _INTERVAL,
    "evaluation.episodes": _EPISODES,
    "evaluation.target_return": _TARGET,
    "learning.total_steps": _MOST_SAMPLES,
    "logging.interval_seconds": 5.0,
}


@dataclass(frozen=True, kw_only=True)
class SamplesOptions:
    """Compare the system's completions to 95 % right answers with a synchronous reference's.

    Attributes:
      seeds: number of repetitions, seeds 0, 1, ...
      until_loss: loss at which the warm start ends.
    """

    seeds: int = 3
    until_loss: float = 0.3


def main(options: SamplesOptions) -> int:
    ratios = []
    for seed in range(options.seeds):
        with tempfile.TemporaryDirectory(prefix="seedrl-samples-") as folder:
            ours, theirs = measured(Path(folder), seed, options.until_loss)
        ratios.append(ours / theirs)
        print(f"seed {seed}: system {ours:,.0f}, reference {theirs:,.0f}: {ratios[-1]:.2f}")
    ratio = statistics.median(ratios)
    word = "met" if ratio <= _MOST_RATIO else "MISSED"
    print(
        f"{word}: ratio {ratio:.2f} ({min(ratios):.2f}..{max(ratios):.2f}), at most {_MOST_RATIO}"
    )
    return int(ratio > _MOST_RATIO)


def measured(folder: Path, seed: int, until_loss: float) -> tuple[float, float]:
    """Completions to the target, of the system and of the reference."""
    warm, workdir = folder / "warm", folder / "run"
    words = [f"--{name.replace('_', '-')}={value}" for name, value in _FLAGS.items()]
    words += [f"--seed={seed}"]
    start = ("--until-loss", str(until_loss), "--workdir", str(warm))
    run_seedrl("pretrain", "reverse_grpo", *words, *start)
    run_seedrl("train", "reverse_grpo", *words, "--init-from", str(warm), "--workdir", str(workdir))
    lines = map(json.loads, (workdir / "metrics.jsonl").read_text().splitlines())
    # A confirmation plays the same parameters again.
    rounds = [
        each for each in lines if each["kind"] == "evaluation" and not each["is_confirmation"]
    ]
    config = with_fields(config_io.load("reverse_grpo"), _FLAGS)
    reference = Reference(
        config.agent,
        reverse(**json.loads(config.environment.arguments)),
        warm_params(config, warm),
        seed=seed,
    )
    batch = config.learning.batch_sequences
    theirs = itertools.takewhile(
        lambda each: each.samples <= _MOST_SAMPLES,
        reference.rounds(batch=batch, interval=_INTERVAL, episodes=_EPISODES),
    )
    # A completion is an environment step: questions have one turn.
    ours = (Round(each["env_steps"], each["mean_return"]) for each in rounds)
    return samples_to(ours, _TARGET), samples_to(theirs, _TARGET)


def run_seedrl(*words: str) -> None:
    command = [sys.executable, "-m", "learner.cli.main", *words]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: exit code {done.returncode}: {done.stderr[-2000:]}")


def warm_params(config: Config, workdir: Path) -> Tree:
    found = checkpoints.latest(workdir / "checkpoints")
    assert found is not None
    key = jax.random.key(0)
    shapes = jax.eval_shape(lambda key: decoder.init(config.agent.network, key), key)
    return stored_arrays.read_tree(found.path, {"params": shapes})["params"]


if __name__ == "__main__":
    sys.exit(main(read(SamplesOptions, None, prog=PROG)))
