"""An agent of your own: `seedrl train docs/examples/own_agent/config.py --agent.penalty 1e-3`.

It learns the task of `../own_environment`, with the settings of that example.
"""

import dataclasses
from pathlib import Path

from penalized_r2d2 import PenalizedR2D2Config

from seedrl import config_io
from seedrl.config import Config


def config() -> Config:
    other = config_io.load(Path(__file__).parents[1] / "own_environment" / "config.py")
    settings = {
        field.name: getattr(other.agent, field.name) for field in dataclasses.fields(other.agent)
    }
    return dataclasses.replace(other, agent=PenalizedR2D2Config(**settings))
