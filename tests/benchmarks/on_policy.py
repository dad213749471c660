"""Pipeline of IMPALA and PPO, which take each time step once, against its parts."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from learner.extras.bench import pipeline, workloads
from learner.extras.bench.measuring import Pace, Result, apart
from learner.extras.bench.workloads import Workload
from seedrl.agents.impala import ImpalaConfig
from seedrl.agents.ppo import PpoConfig
from seedrl.config import LaunchConfig
from seedrl.fields import with_fields
from seedrl.networks.config import ActorCriticConfig
from seedrl.replay.queue import QueueConfig

_TARGETS = {"CartPole": 0.45, "CartPole in one group": 0.6, "Pong": 0.85}


def run(pace: Pace) -> Iterator[Result]:
    """Acting and learning of IMPALA and PPO, on CartPole and on Pong."""
    for workload in (*on_policy_workloads(), *_in_one_group()):
        environment, _, _ = workload.name.partition(" by ")
        targets = {"learning": _TARGETS[environment]}
        yield from apart(workload.config, pipeline.results, workload, pace, targets=targets)


def on_policy_workloads() -> Iterator[Workload]:
    """IMPALA and PPO, asynchronous, in rollouts of 32 rows; each row goes through one update.

    CartPole as in `pipeline`, with two layers of 64; Pong with the Nature network, 32 environments
    a message.
    """
    small = ActorCriticConfig(torso="mlp", torso_sizes=(64, 64), core="none")
    nature = ActorCriticConfig(torso="nature", torso_sizes=(512,), core="none")
    of_pong = LaunchConfig(env_servers=1, envs_per_server=64, groups=2)
    for workload, batch_rows, launch, network in (
        (workloads.cartpole(), 4096, pipeline.cartpole().config.launch, small),
        (workloads.pong(), 1024, of_pong, nature),
    ):
        impala = ImpalaConfig(network=network, unroll=31)
        ppo = PpoConfig(network=network, unroll=31, epochs=1, minibatches=1)
        for agent in (impala, ppo):
            yield _on_policy(workload, agent, batch_rows=batch_rows, launch=launch)


def _in_one_group() -> Iterator[Workload]:
    """Those of CartPole with one group of each env server: 256 environments a message."""
    for workload in on_policy_workloads():
        environment, _, agent = workload.name.partition(" by ")
        if environment == "CartPole":
            config = with_fields(workload.config, {"launch.groups": 1})
            name = f"{environment} in one group by {agent}"
            yield dataclasses.replace(workload, name=name, config=config)


def _on_policy(
    workload: Workload, agent: Any, *, batch_rows: int, launch: LaunchConfig
) -> Workload:
    """The workload with an agent of the on-policy queue, whose updates take `batch_rows` rows."""
    config = workload.config
    learning = dataclasses.replace(
        config.learning,
        batch_sequences=batch_rows // agent.window.length,
        num_devices=1,
        total_steps=workloads.ENDLESS,
    )
    changed = dataclasses.replace(
        config, agent=agent, replay=QueueConfig(), learning=learning, launch=launch
    )
    name = f"{workload.name} by {type(agent).__name__.removesuffix('Config').upper()}"
    return dataclasses.replace(workload, name=name, config=changed)
