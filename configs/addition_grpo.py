"""GRPO on sums of two numbers of three digits, written from the least digit, on two CPU cores.

Start it from `seedrl pretrain addition_grpo --until-loss 0.5`. A score is the share of right
answers to pairs of numbers that are held out, likeliest tokens.
"""

from seedrl.config import Config
from seedrl.config_io import load
from seedrl.fields import with_fields


def config() -> Config:
    return with_fields(
        load("reverse_grpo"),
        {
            "environment.id": "envs_server.envs.token_tasks:addition",
            "environment.arguments": '{"digits": 3, "least_first": true}',
            "agent.network.vocabulary": 13,
            # Wavelengths of the rotary positions up to the length of a dialogue.
            "agent.network.rope_theta": 20.0,
        },
    )
