"""Completions to 95 % right answers: the system against a synchronous reference.

`python -m tests.benchmarks.token_samples` takes two to three minutes a seed. Both start from
the same warm start and have the same task, network, batch and optimizer.
"""

import itertools
import json
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from envs_server.envs.token_tasks import reverse
from seedrl import config_io
from seedrl.programs.command_line import read
from tests.benchmarks.ended_runs import rounds, train, warm_start
from tests.benchmarks.token_reference import Reference, Round, samples_to

PROG = "python -m tests.benchmarks.token_samples"
_CONFIG = "reverse_grpo"
_TARGET = 0.95
_MOST_RATIO = 1.1
_INTERVAL = 2048
_EPISODES = 200
_MOST_SAMPLES = 100_000
_FLAGS = (
    f"--evaluation.interval-steps={_INTERVAL}",
    f"--evaluation.episodes={_EPISODES}",
    f"--evaluation.target-return={_TARGET}",
    f"--learning.total-steps={_MOST_SAMPLES}",
)


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
        ours, theirs = measured(seed, options.until_loss)
        ratios.append(ours / theirs)
        print(f"seed {seed}: system {ours:,.0f}, reference {theirs:,.0f}: {ratios[-1]:.2f}")
    ratio = statistics.median(ratios)
    word = "met" if ratio <= _MOST_RATIO else "MISSED"
    print(
        f"{word}: ratio {ratio:.2f} ({min(ratios):.2f}..{max(ratios):.2f}), at most {_MOST_RATIO}"
    )
    return int(ratio > _MOST_RATIO)


def measured(seed: int, until_loss: float) -> tuple[float, float]:
    """Completions to the target, of the system and of the reference."""
    config = config_io.load(_CONFIG)
    with tempfile.TemporaryDirectory(prefix="seedrl-samples-") as folder:
        warm = Path(folder) / "warm"
        params = warm_start(_CONFIG, seed, until_loss=until_loss, workdir=warm)
        lines = train(_CONFIG, seed, *_FLAGS, "--init-from", str(warm))
    # A completion is an environment step: questions have one turn.
    ours = (Round(each["env_steps"], each["mean_return"]) for each in rounds(lines))
    env = reverse(**json.loads(config.environment.arguments))
    reference = Reference(config.agent, env, params, seed=seed)
    theirs = itertools.takewhile(
        lambda each: each.samples <= _MOST_SAMPLES,
        reference.rounds(
            batch=config.learning.batch_sequences, interval=_INTERVAL, episodes=_EPISODES
        ),
    )
    return samples_to(ours, _TARGET), samples_to(theirs, _TARGET)


if __name__ == "__main__":
    sys.exit(main(read(SamplesOptions, None, prog=PROG)))
