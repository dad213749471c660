"""R2D2 with a network of your own: `seedrl train docs/examples/own_network/config.py`.

It learns the task of `../own_environment`, which needs memory. Loading that example's configuration
also puts its directory on the import path.
"""

import dataclasses
from pathlib import Path

from minimal_gru import MinimalGRUConfig

from seedrl import config_io
from seedrl.config import Config


def config() -> Config:
    other = config_io.load(Path(__file__).parents[1] / "own_environment" / "config.py")
    agent = dataclasses.replace(other.agent, network=MinimalGRUConfig(size=32))
    return dataclasses.replace(other, agent=agent)
