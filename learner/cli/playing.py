"""What `seedrl evaluate` and `seedrl record` share: which checkpoint of which run is played."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import tyro

from seedrl import config_io
from seedrl.config import Config
from seedrl.config_io import of_run, require_factories
from seedrl.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class PlayOptions:
    """What is played of a run.

    Attributes:
      workdir: folder of the run.
      episodes: number of episodes to play.
      step: play the checkpoint of that many updates.
      best: play the checkpoint that scored highest in the evaluations of the run.
      seed: of environments and random actions; by default the run's.
      greedy: take greedy actions only; by default the agent explores as when it is evaluated in
        training.
      allow: code that the run may name: folders of Python files, and factories of environments,
        package.module:factory; by default only what is installed, and environments by their id.
    """

    workdir: Annotated[Path, tyro.conf.Positional]
    episodes: int
    step: int | None = None
    best: bool = False
    seed: int | None = None
    greedy: bool = False
    allow: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.episodes < 1:
            raise ConfigError(f"--episodes: expected at least 1, got {self.episodes}")
        if self.seed is not None and self.seed < 0:
            raise ConfigError(f"--seed: expected at least 0, got {self.seed}")
        if self.best and self.step is not None:
            raise ConfigError("--step and --best: expected one of them, got both")


def config_of(options: PlayOptions) -> Config:
    """The configuration of the run that is played, with environments that depend on no others.

    Raises ConfigError if it names code that is not allowed.
    """
    config_io.allow(*options.allow)
    config = of_run(options.workdir)
    require_factories((config.environment.id, *config.environment.wrappers))
    if config.environment.vectorization != "auto":
        return config
    # Then an environment does not depend on which others share its env server.
    return replace(config, environment=replace(config.environment, vectorization="seeded"))
