"""What a user brings trains through the programs that are there."""

import json
from pathlib import Path

import pytest

from learner.checkpoints.run_records import read_run
from learner.processes.env_servers import socket_address
from seedrl import checkpoints
from tests.system import processes
from tests.system.processes import TRAIN, Programs

pytestmark = pytest.mark.slow

CONFIG = """
from seedrl.config import (
    CheckpointConfig,
    Config,
    EnvironmentConfig,
    EvaluationConfig,
    LearningConfig,
    LoggingConfig,
    ReplayConfig,
    ServingConfig,
)
from seedrl_plugin.dqn import DQNConfig
from seedrl_plugin.fifo import QueueConfig
from seedrl_plugin.reinforce import ReinforceConfig


def config() -> Config:
    return Config(
        environment=EnvironmentConfig(id="seedrl_plugin.env:make", arguments='{"length": 4}'),
        evaluation=EvaluationConfig(
            interval_steps=1, episodes=2, target_return=1.0, confirm_episodes=10
        ),
        checkpoint=CheckpointConfig(replay=True),
        logging=LoggingConfig(interval_seconds=0.2, learning_curve=False),
        OWN
    )
"""
DQN = """agent=DQNConfig(),
        serving=ServingConfig(training_slots=1, evaluation_slots=1),
        replay=ReplayConfig(capacity_steps=2_000, min_steps=64),
        learning=LearningConfig(batch_sequences=16, total_steps=20_000),"""
REINFORCE = """agent=ReinforceConfig(),
        serving=ServingConfig(training_slots=2, evaluation_slots=2),
        replay=QueueConfig(),
        learning=LearningConfig(batch_sequences=8, num_devices=1, total_steps=200_000),"""


# A whole run of this agent: test_hosts.py. The confirmed target: learner/test_end_of_run.py.
@pytest.mark.gate
def test_an_agent_and_an_environment_of_another_package_train_to_the_optimum(
    programs: Programs, tmp_path: Path
) -> None:
    (tmp_path / "corridor.py").write_text(CONFIG.replace("OWN", DQN))
    workdir = tmp_path / "run"
    run = programs(*TRAIN, "corridor.py", "--workdir", workdir, "--env-servers", 1)
    assert run.end() == 0, run.stderr
    last = processes.records(workdir, "evaluation")[-1]
    assert last["is_confirmation"]
    assert last["mean_return"] == 1.0
    assert processes.records(workdir)[-1]["updates"] > 0
    saved = json.loads((workdir / "config.json").read_text())["config"]
    assert saved["agent"]["type"] == "seedrl_plugin.dqn:DQNConfig"
    # What scored is kept, and what the folder says of the run is what happened.
    assert checkpoints.best_return(checkpoints.choose(workdir, is_best=True)) == 1.0
    # The newest checkpoint is later, but its parameters are those that confirmed the target.
    assert checkpoints.updates_of_params(checkpoints.choose(workdir)) == last["updates"]
    found = read_run(workdir)
    assert (found.config, found.state, found.best) == ("corridor", "finished", 1.0)


@pytest.mark.gate  # each unroll once: tests/learner/learning/test_learning_on_policy.py
def test_an_on_policy_agent_with_a_queue_of_its_own_trains_on_each_unroll_once(
    programs: Programs, tmp_path: Path
) -> None:
    (tmp_path / "on_policy.py").write_text(CONFIG.replace("OWN", REINFORCE))
    workdir = tmp_path / "run"
    with socket_address() as address:
        allowed = ("--allow-env", "seedrl_plugin.env:*")
        programs("envs_server", "--learner", address, "--num-envs", 4, *allowed)
        learner = programs("learner", "on_policy.py", "--workdir", workdir, "--bind", address)
        assert learner.end() == 0, learner.stderr
    last = processes.records(workdir, "evaluation")[-1]
    assert last["is_confirmation"]
    assert last["mean_return"] == 1.0
    saved = checkpoints.latest(workdir / "checkpoints")
    assert saved is not None
    (index,) = saved.meta["replay_indices"]
    (ledger,) = processes.records(workdir, "ledger")
    # Batches of 8 unrolls of 16 rows: all that was stored was trained, or still waits.
    assert saved.step > 0
    assert index["num_inserted"] == 8 * saved.step + len(index["waiting"])
    assert ledger["stored"] == 16 * index["num_inserted"]
    assert processes.records(workdir)[-1]["skipped_updates"] == 0
