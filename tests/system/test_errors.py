"""What a user gets wrong ends in one clear line and a documented exit code, and everything ends."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from learner.processes.env_servers import socket_address
from tests.patience import wait_until
from tests.system import processes
from tests.system.processes import TINY, TRAIN, Program, Programs

USAGE, TEMPORARY = 2, 75  # as documented
LEARNER = ("learner", "cartpole_r2d2", *TINY)
OWN = LEARNER[1:]  # of a learner in this process

# An agent that hangs in its program once acting goes on after the warm-up, on the least that acts.
HANGING = """
import time

import jax
from seedrl_plugin.dqn import DQNConfig

from seedrl.config import Config, EnvironmentConfig

calls = []


def hang(values):
    calls.append(None)
    if len(calls) > 30:
        time.sleep(3600)
    return values


class Hanging(DQNConfig):
    def build(self, spec):
        agent = super().build(spec)

        def act(params, carry, timestep, epsilon, key):
            output = agent.act(params, carry, timestep, epsilon, key)
            action = jax.pure_callback(hang, output.action, output.action)
            return output._replace(action=action)

        return agent._replace(act=act)


def config():
    return Config(environment=EnvironmentConfig(id="CartPole-v1"), agent=Hanging())
"""

# An environment of which two machines have different versions.
CHANGED = """
import os

import gymnasium
import numpy as np


class Changed(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (int(os.environ["SIZE"]),), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    if "BOX" in os.environ:
        action_space = observation_space

    def reset(self, *, seed=None, options=None):
        return np.zeros(self.observation_space.shape, np.float32), {}

    def step(self, action):
        return np.zeros(self.observation_space.shape, np.float32), 0.0, False, False, {}


def make():
    return Changed()
"""


@pytest.fixture
def address() -> Iterator[str]:
    with socket_address() as own:
        yield own


class Shared(NamedTuple):
    """One learner for all tests that must not end it, of the environment `changed:make`."""

    learner: Program
    workdir: Path
    address: str


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    folder = tmp_path_factory.mktemp("shared")
    with Programs(folder) as programs, socket_address() as address:
        flags = ("--workdir", folder / "run", "--bind", address)
        learner = programs(*LEARNER, *flags, "--environment.id", "changed:make")
        processes.wait_for(lambda: ", serving " in learner.stderr, learner)
        yield Shared(learner, folder / "run", address)


def has_line(program: Program, end: str) -> bool:
    """Whether a line on stderr ends so. gRPC may write of a connection's end behind it."""
    return any(line.endswith(end) for line in program.stderr.splitlines())


# So large that no machine has room for many of them.
LARGE = (
    "--environment.id=envs_server.envs.constant:make",
    '--environment.arguments={"shape": [65536], "dtype": "float32"}',
)


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        pytest.param(
            *(("--replay.capacity-steps", "2000000000", *LARGE), "replay.capacity_steps"),
            marks=pytest.mark.gate,
        ),
        (("--environment.id", "NoSuch-v0"), "NoSuch-v0"),
    ],
    ids=["memory", "environment"],
)
def test_what_only_a_learner_or_an_env_server_can_know_ends_the_whole_run(
    programs: Programs, tmp_path: Path, flags: tuple[str, ...], named: str
) -> None:
    flags = (*flags, "--env-servers", "1")
    workdir = tmp_path / "run"
    words = ("cartpole_r2d2", "--workdir", workdir, "--env-servers", 1, *TINY, *flags)
    run = programs(*TRAIN, *words)
    children: set[int] = set()
    wait_until(
        lambda: children.update(processes.descendants(run.pid)) or run.has_ended,
        pause_seconds=0.05,
    )
    assert run.end() == USAGE
    (line,) = [line for line in run.stderr.splitlines() if "error: " in line]
    assert named in line
    assert "Traceback" not in run.stderr and run.stdout == ""
    assert children
    processes.wait_until_gone(children)


def test_a_socket_or_a_folder_that_another_learner_uses(
    shared: Shared, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    address = shared.address
    code, line = processes.told(capsys, *OWN, "--workdir", tmp_path / "other", "--bind", address)
    assert code == TEMPORARY
    assert address in line
    workdir = shared.workdir
    code, line = processes.told(capsys, *OWN, "--workdir", workdir, "--bind", f"{address}2")
    assert code == TEMPORARY
    assert line.startswith(f"python -m learner: error: another learner is using {workdir}; stop it")
    # The one that was there first did not notice.
    assert not shared.learner.has_ended


def test_an_env_server_that_is_not_ready_is_named_on_both_sides_and_the_learner_waits(
    programs: Programs, shared: Shared
) -> None:
    env_server = programs("envs_server", "--learner", shared.address, "--num-envs", 6)
    expected = "--allow-env 'changed:make'"
    assert env_server.end() == 2
    processes.wait_for(lambda: expected in shared.learner.stderr, shared.learner)
    assert "Traceback" not in shared.learner.stderr
    assert has_line(env_server, expected)
    assert "Traceback" not in env_server.stderr


def test_a_first_environment_that_does_not_suit_the_agent_ends_the_run(
    programs: Programs, tmp_path: Path, address: str
) -> None:
    (tmp_path / "changed.py").write_text(CHANGED)
    flags = ("--workdir", tmp_path / "run", "--bind", address)
    learner = programs(*LEARNER, *flags, "--environment.id", "changed:make")
    command = ("envs_server", "--learner", address, "--num-envs", 3)
    env_server = programs(*command, "--allow-env", "changed:*", SIZE="4", BOX="")
    expected = "agent: R2D2 takes Discrete actions, the environment has Box[4]"
    for program in (learner, env_server):
        assert program.end() == 2, program.stderr
        assert expected in program.stderr
        assert "Traceback" not in program.stderr


def test_a_thread_that_hangs_ends_the_run(programs: Programs, tmp_path: Path, address: str) -> None:
    path = tmp_path / "hanging.py"
    path.write_text(HANGING)
    programs("envs_server", "--learner", address, "--num-envs", 1, "--groups", 1)
    flags = ("--workdir", tmp_path / "run", "--bind", address, "--logging.stuck-seconds", 3)
    flags += ("--serving.training-slots", 1, "--serving.evaluation-slots", 0)
    flags += ("--replay.capacity-steps", 256, "--replay.min-steps", 64)
    learner = programs("learner", path, *flags, "--learning.batch-sequences", 4)
    assert learner.end() == TEMPORARY
    # On few cores learning waits behind it.
    expected = r"acting (and learning )?finished nothing for 3 seconds \(logging.stuck_seconds\)"
    assert re.search(expected, learner.stderr)
    assert "in hang" in learner.stderr  # the stacks


# Last: from here on the learner compiles what it will train with, until it is killed.
def test_an_env_server_whose_environment_differs_is_refused_and_the_others_go_on(
    programs: Programs, tmp_path: Path, shared: Shared
) -> None:
    (tmp_path / "changed.py").write_text(CHANGED)
    learner = shared.learner
    command = ("envs_server", "--learner", shared.address, "--num-envs", 3)
    command = (*command, "--allow-env", "changed:*")
    first = programs(*command, SIZE="4")
    processes.wait_for(lambda: "connected: " in first.stderr, first)
    second = programs(*command, SIZE="5", PYTHONWARNINGS="error")
    assert second.end() == 2
    difference = "observation: expected float32[4] of -1 to 1, got float32[5] of -1 to 1"
    assert has_line(second, difference)
    assert "Traceback" not in second.stderr
    # It was a server among others: the run continues, and says who was turned away.
    processes.wait_for(lambda: ": this environment differs from " in learner.stderr, learner)
    assert difference in learner.stderr
    assert first.process.poll() is None
    assert first.stderr.count("connected: ") == 1
