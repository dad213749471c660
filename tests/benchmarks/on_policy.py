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

# Groups of CartPole's env server of 1,024 environments, and what is wanted of the ratio: 128
# environments a message, and all in one, as in the bundled configurations.
_CARTPOLE_GROUPS = ((8, 0.45), (1, 0.6))
_PONG_TARGET = 0.85


def run(pace: Pace) -> Iterator[Result]:
    """Acting and learning of IMPALA and PPO, on CartPole and on Pong."""
    for workload in on_policy_workloads():
        if workload.name.startswith("Pong"):
            yield from _measured(workload, pace, _PONG_TARGET)
        else:
            for groups, target in _CARTPOLE_GROUPS:
                yield from _measured(_of_one_env_server(workload, groups), pace, target)


def _measured(workload: Workload, pace: Pace, target: float) -> Iterator[Result]:
    targets = {"learning": target}
    yield from apart(workload.config, pipeline.results, workload, pace, targets=targets)


def _of_one_env_server(workload: Workload, groups: int) -> Workload:
    # An update has a rollout of each environment, as in the bundled configurations.
    # docs/performance_notebook.md has what other layouts cost.
    launch = LaunchConfig(env_servers=1, envs_per_server=1024, groups=groups)
    changes = {"launch": launch, "learning.batch_sequences": launch.envs_per_server}
    name = f"{workload.name}, groups of {launch.envs_per_server // groups}"
    return dataclasses.replace(workload, name=name, config=with_fields(workload.config, changes))


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
