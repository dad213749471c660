"""What is measured: bundled configurations, scaled to what a short measurement can show."""

import dataclasses
from dataclasses import dataclass

from seedrl import config_file
from seedrl.config import Config
from seedrl.specs import ArraySpec, EnvSpec


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A configuration, and what its environment looks like, so that none need be built."""

    name: str
    config: Config
    spec: EnvSpec


def pong() -> Subject:
    """Pong with the fast settings of `pong_r2d2`."""
    return Subject(name="Pong", config=config_file.load("pong_r2d2"), spec=_frames(6))


def atari() -> Subject:
    """Any Atari game with the settings of the R2D2 paper."""
    return Subject(name="Atari", config=config_file.load("atari_r2d2"), spec=_frames(18))


def cartpole() -> Subject:
    """CartPole with the settings of `cartpole_r2d2`."""
    spec = EnvSpec(ArraySpec((4,), "float32"), 2)
    return Subject(name="CartPole", config=config_file.load("cartpole_r2d2"), spec=spec)


def with_replay(subject: Subject, *, capacity_steps: int) -> Subject:
    """The subject with another size of replay."""
    replay = dataclasses.replace(subject.config.replay, capacity_steps=capacity_steps)
    return _changed(subject, replay=replay)


def _changed(subject: Subject, **sections: object) -> Subject:
    config = dataclasses.replace(subject.config, **sections)  # type: ignore[arg-type]
    return dataclasses.replace(subject, config=config)


def _frames(num_actions: int) -> EnvSpec:
    return EnvSpec(ArraySpec((84, 84), "uint8"), num_actions)
