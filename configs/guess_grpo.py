"""GRPO on a number below 15 to be guessed in four turns with hints, on two CPU cores.

Start it from `seedrl pretrain guess_grpo --until-loss 1.05`. A score is the share of numbers that
were found, likeliest tokens. Without memory of earlier turns the best guesses find 0.20, the best
probabilities of guesses 0.35; guesses at random among what is left find 0.60, bisection 1.

Seeds 0 to 2: 0.34 to 0.42 after the warm start, 0.92 to 0.945 after 91,575 to 111,494 completions.
Two busy cores of a CPU; 2026-11-27, commit 50cfc83d.
"""

from seedrl.config import Config
from seedrl.config_io import load
from seedrl.fields import with_fields


def config() -> Config:
    return with_fields(
        load("reverse_grpo"),
        {
            "environment.id": "envs_server.envs.token_tasks:guess",
            "environment.arguments": "{}",
            "agent.network.vocabulary": 14,
            # Four turns of one token and four completions of up to four.
            "agent.network.context": 20,
            "agent.network.rope_theta": 20.0,
            # Some policies find all numbers but one, 0.93, and then have nothing to compare.
            "evaluation.target_return": 0.9,
        },
    )
