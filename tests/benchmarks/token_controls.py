"""What group advantages are worth: the synchronous reference with them, and without.

`python -m tests.benchmarks.token_controls` takes some minutes a seed. Each kind of advantages has
the same warm start, and as many completions, words and updates.
"""

import itertools
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from envs_server.envs.token_tasks import Reverse
from seedrl import config_io
from seedrl.programs.command_line import read
from tests.benchmarks.token_reference import Reference, group_advantages
from tests.benchmarks.token_samples import run_seedrl, warm_params

PROG = "python -m tests.benchmarks.token_controls"
_ADVANTAGES = {
    "group": group_advantages,
    "reward": lambda groups: groups,
    # Group advantages are the same, whatever is added to all rewards.
    "reward plus 1": lambda groups: groups + 1,
}


@dataclass(frozen=True, kw_only=True)
class ControlsOptions:
    """Learn `reverse_grpo` with each kind of advantages; print the shares of right answers.

    Attributes:
      seeds: number of repetitions, seeds 0, 1, ...
      until_loss: loss at which the warm start ends.
      samples: completions of each.
      episodes: held-out words of a round of evaluation.
      kinds: of advantages; all by default.
    """

    seeds: int = 1
    until_loss: float = 0.4
    samples: int = 40_960
    episodes: int = 200
    kinds: tuple[str, ...] = tuple(_ADVANTAGES)


def main(options: ControlsOptions) -> int:
    config = config_io.load("reverse_grpo")
    for seed in range(options.seeds):
        with tempfile.TemporaryDirectory(prefix="seedrl-controls-") as folder:
            loss = str(options.until_loss)
            words = ("--seed", str(seed), "--until-loss", loss, "--workdir", folder)
            run_seedrl("pretrain", "reverse_grpo", *words)
            params = warm_params(config, Path(folder))
        for kind in options.kinds:
            reference = Reference(
                config.agent,
                Reverse(**json.loads(config.environment.arguments)),
                params,
                seed=seed,
                advantages=_ADVANTAGES[kind],
            )
            rounds = reference.rounds(
                batch=config.learning.batch_sequences, interval=8192, episodes=options.episodes
            )
            played = list(itertools.takewhile(lambda each: each.samples <= options.samples, rounds))
            scores = [round(each.score, 3) for each in played]
            print(json.dumps({"seed": seed, "advantages": kind, "scores": scores}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(read(ControlsOptions, None, prog=PROG)))
