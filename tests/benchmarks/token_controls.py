"""The value of group advantages: the synchronous reference with them, and without.

`python -m tests.benchmarks.token_controls` takes some minutes a seed. Each kind of advantages has
the same warm start, words and batches. `shuffled` has no signal: it shows the effect of updates of
the usual size in random directions. Without any advantages no parameter would change. The rewards
themselves, also plus 1, estimate the same gradient as group advantages, without a baseline.
"""

import itertools
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import jax.numpy as jnp

from envs_server.envs.token_tasks import reverse
from seedrl import config_io
from seedrl.programs.command_line import read
from tests.benchmarks.ended_runs import warm_start
from tests.benchmarks.token_reference import Reference, group_advantages

PROG = "python -m tests.benchmarks.token_controls"
_CONFIG = "reverse_grpo"
_ADVANTAGES = {
    "group": group_advantages,
    # Each completion has the advantage of an answer to another question.
    "shuffled": lambda groups: jnp.roll(group_advantages(groups), 1, axis=0),
    "reward": lambda groups: groups,
    # Group advantages are the same, whatever is added to all rewards.
    "reward plus 1": lambda groups: groups + 1,
}


@dataclass(frozen=True, kw_only=True)
class ControlsOptions:
    """Learn `reverse_grpo` with each kind of advantages; print the shares of right answers.

    One JSON line for each seed and kind, with the shares of right answers to held-out words every
    8,192 completions: `likeliest` tokens, and `sampled` ones as in training.

    Attributes:
      seeds: of the repetitions.
      until_loss: loss at which the warm start ends.
      samples: completions of each, at most.
      target: share of the likeliest answers at which a kind ends.
      episodes: held-out words of a round of evaluation.
      kinds: of advantages; all by default.
    """

    seeds: tuple[int, ...] = (0,)
    until_loss: float = 0.3
    samples: int = 40_960
    target: float = 0.95
    episodes: int = 200
    kinds: tuple[str, ...] = tuple(_ADVANTAGES)


def main(options: ControlsOptions) -> int:
    config = config_io.load(_CONFIG)
    for seed in options.seeds:
        with tempfile.TemporaryDirectory(prefix="seedrl-controls-") as folder:
            warm = Path(folder) / "warm"
            params = warm_start(_CONFIG, seed, until_loss=options.until_loss, workdir=warm)
        for kind in options.kinds:
            reference = Reference(
                config.agent,
                reverse(**json.loads(config.environment.arguments)),
                params,
                seed=seed,
                advantages=_ADVANTAGES[kind],
            )
            rounds = reference.rounds(
                batch=config.learning.batch_sequences, interval=8192, episodes=options.episodes
            )
            likeliest, sampled = list[float](), list[float]()
            for each in itertools.takewhile(lambda each: each.samples <= options.samples, rounds):
                score = reference.score(options.episodes, temperature=config.agent.temperature)
                likeliest.append(round(each.score, 3))
                sampled.append(round(score, 3))
                if each.score >= options.target:
                    break
            line = {"until_loss": options.until_loss, "seed": seed, "advantages": kind}
            print(json.dumps({**line, "likeliest": likeliest, "sampled": sampled}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(read(ControlsOptions, None, prog=PROG)))
