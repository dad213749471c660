"""Acting and learning against Sample Factory: environment steps that go through learning.

Ours is the system of `seedrl bench pipeline`, theirs asynchronous PPO that takes every step once:
R2D2 at replay ratio 1 with a recurrent network, and IMPALA and PPO, which take every step once too,
with one that is not. Torso, core, widths, batch and rollout are the same, but for the windows of
R2D2. While one is measured, the other is frozen.
"""

import dataclasses
import importlib.resources
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from learner.extras.bench import pipeline
from learner.extras.bench.measuring import Pace, Result, apart, interleave
from learner.extras.bench.system import System
from learner.extras.bench.workloads import Workload
from tests.benchmarks.conditions import conditions
from tests.benchmarks.on_policy import on_policy_workloads
from tests.benchmarks.peers import virtual_environment
from tests.benchmarks.peers.peer_process import PeerProcess

_PATIENCE_SECONDS = 180.0
# Of each of their programs.
FLAGS = (
    *("--algo=APPO", "--async_rl=True", "--serial_mode=False", "--device=cpu"),
    *("--num_workers=2", "--worker_num_splits=2", "--experiment=peer"),
    *("--decorrelate_experience_max_seconds=0", "--summaries_use_frameskip=False"),
)
_FLAGS = (
    *("--policy_workers_per_policy=1", "--train_for_env_steps=1000000000000"),
    *("--num_epochs=1", "--num_batches_per_epoch=1", "--rollout=32"),
    # What ours does not do either, and what would cost them time.
    *("--normalize_input=False", "--normalize_returns=False", "--save_every_sec=1000000"),
)
_RECURRENT = (
    *("--use_rnn=True", "--rnn_type=lstm", "--rnn_num_layers=1", "--recurrence=32"),
    "--with_vtrace=False",
)
# For IMPALA, too: their V-trace ends with an AttributeError in this version.
_FEED_FORWARD = ("--use_rnn=False", "--recurrence=1", "--with_vtrace=False")
# As in `tests.benchmarks.on_policy`.
_ON_POLICY_TASKS = {
    "CartPole": (
        *("--env=CartPole-v1", "--encoder_mlp_layers", "64", "64", "--nonlinearity=relu"),
        *("--num_envs_per_worker=128", "--batch_size=4096"),
    ),
    "Pong": ("--env=atari_pong", "--num_envs_per_worker=32", "--batch_size=1024"),
}


class _Task(NamedTuple):
    """What both do: our workload, their flags, and the ratio to reach."""

    workload: Workload
    flags: tuple[str, ...]
    target: float | None


def run(pace: Pace, venvs: Path) -> Iterator[Result]:
    """Steps a second of R2D2 on CartPole twice, then Pong; of IMPALA and PPO on both."""
    interpreter = virtual_environment.python("sample_factory", venvs)
    copy_game(interpreter, "pong")
    for task in _tasks():
        yield from apart(task.workload.config, _results, task, interpreter, pace)


def copy_game(interpreter: Path, game: str) -> None:
    """Copies a game of ours to their ale-py, which comes without any."""
    question = "import importlib.util; print(importlib.util.find_spec('ale_py').origin)"
    found = subprocess.run(
        [interpreter, "-c", question], capture_output=True, text=True, check=True
    ).stdout
    source = importlib.resources.files("ale_py") / "roms" / f"{game}.bin"
    with importlib.resources.as_file(source) as rom:
        shutil.copyfile(rom, Path(found.strip()).parent / "roms" / rom.name)


def _tasks() -> Iterator[_Task]:
    for workload in on_policy_workloads():
        environment, _, _ = workload.name.partition(" by ")
        is_cartpole = environment == "CartPole"
        yield _Task(
            workload,
            (*_ON_POLICY_TASKS[environment], *_FEED_FORWARD),
            1.5 if is_cartpole else 1.0,
        )
    cartpole = (
        *_RECURRENT,
        *("--env=CartPole-v1", "--encoder_mlp_layers", "64", "--rnn_size=64"),
        *("--nonlinearity=relu", "--num_envs_per_worker=128", "--batch_size=4096"),
    )
    yield _Task(pipeline.cartpole(), cartpole, 2.0)
    yield _Task(_in_rollouts(pipeline.cartpole()), cartpole, 2.0)
    yield _Task(
        pipeline.pong(),
        (
            *_RECURRENT,
            *("--env=atari_pong", "--rnn_size=256"),
            *("--num_envs_per_worker=32", "--batch_size=1024"),
        ),
        None,
    )


def _in_rollouts(workload: Workload) -> Workload:
    """The workload that learns from what theirs does: 128 times 32 rows that do not overlap."""
    config = workload.config
    agent = dataclasses.replace(config.agent, burn_in=0, unroll=32, stride=32, n_steps=5)
    learning = dataclasses.replace(config.learning, batch_sequences=128)
    # A sequence of each environment.
    replay = dataclasses.replace(config.replay, min_steps=32_768)
    return dataclasses.replace(
        workload,
        name=f"{workload.name} in rollouts of 32",
        config=dataclasses.replace(config, agent=agent, learning=learning, replay=replay),
    )


def _results(task: _Task, interpreter: Path, pace: Pace) -> Iterator[Result]:
    workload = task.workload
    command = (interpreter, virtual_environment.PROGRAMS / "sample_factory_appo.py")
    with (
        System(workload.config) as system,
        PeerProcess(command, patience_seconds=_PATIENCE_SECONDS) as process,
    ):
        process.prepare(flags=[*FLAGS, *_FLAGS, *task.flags])
        system.run_until(lambda: system.parts.learning.updates > 0)

        def ours() -> float:
            interval = system.run(pace.seconds, by_updates=True)
            return interval.steps / interval.seconds

        def theirs() -> float:
            return process.rate(seconds=pace.seconds)

        measured = interleave({"ours": ours, "theirs": theirs}, pace.rounds)
    yield Result(
        name=f"{workload.name}: acting and learning",
        unit="steps/s",
        limit_name="Sample Factory APPO",
        ours=measured["ours"],
        limits=measured["theirs"],
        target=task.target,
        conditions=conditions(workload.config, environments=workload.config.launch.envs_per_server),
    )
