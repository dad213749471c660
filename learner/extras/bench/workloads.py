"""What is measured: bundled configurations, scaled to what a short measurement can show."""

import dataclasses
from dataclasses import dataclass

from seedrl import config_io
from seedrl.config import Config, LaunchConfig
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec

# Steps of a run whose end no measurement reaches.
ENDLESS = 10**15


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A configuration, and its environment's spec, so that no environment need be built."""

    name: str
    config: Config
    spec: EnvSpec


def pong() -> Workload:
    """Pong with the fast settings of `pong_r2d2`."""
    return Workload(name="Pong", config=config_io.load("pong_r2d2"), spec=_frames(6))


def atari() -> Workload:
    """Any Atari game with the settings of the R2D2 paper."""
    return Workload(name="Atari", config=config_io.load("atari_r2d2"), spec=_frames(18))


def cartpole() -> Workload:
    """CartPole with the settings of `cartpole_r2d2`."""
    spec = EnvSpec(ArraySpec((4,), "float32"), DiscreteSpec(2))
    return Workload(name="CartPole", config=config_io.load("cartpole_r2d2"), spec=spec)


def scaled(
    workload: Workload,
    *,
    capacity_steps: int,
    min_steps: int | None = None,
    batch_sequences: int | None = None,
    launch: LaunchConfig | None = None,
) -> Workload:
    """The workload with another size of replay, of batches and of its fleet, at replay ratio 1.

    Every slot explores at random, whatever the network computes, so that episodes are as long as
    with random actions.
    """
    config = workload.config
    agent = dataclasses.replace(config.agent, exploration_base=1.0, exploration_alpha=0.0)
    replay = dataclasses.replace(
        config.replay,
        capacity_steps=capacity_steps,
        min_steps=min_steps or config.replay.min_steps,
        ratio=1.0,
    )
    learning = dataclasses.replace(
        config.learning,
        batch_sequences=batch_sequences or config.learning.batch_sequences,
        num_devices=1,
        total_steps=ENDLESS,
    )
    changed = dataclasses.replace(
        config, agent=agent, replay=replay, learning=learning, launch=launch or config.launch
    )
    return dataclasses.replace(workload, config=changed)


def _frames(num_actions: int) -> EnvSpec:
    return EnvSpec(ArraySpec((84, 84), "uint8"), DiscreteSpec(num_actions))
