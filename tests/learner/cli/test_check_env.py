"""`seedrl check-env` as a process, on an environment in the folder that it is called in."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from seedrl.exit_codes import ExitCode

ROOT = Path(__file__).parents[3]

ENVIRONMENTS = """
import gymnasium
import numpy as np


class Sound(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        observation = self.np_random.random(1, np.float32)
        return observation, 1.0, bool(observation[0] > 0.9), False, {}


class Broken(Sound):
    def step(self, action):
        return np.full(1, np.nan, np.float32), *super().step(action)[1:]
"""


def check_env(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "learner.cli.main", "check-env", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "own_envs.py").write_text(ENVIRONMENTS)
    return tmp_path


def test_a_sound_environment_passes(folder: Path) -> None:
    done = check_env(folder, "own_envs:Sound", "--steps", "50")
    assert (done.returncode, done.stderr) == (ExitCode.OK, "")
    assert done.stdout.startswith("own_envs:Sound passes\n")
    assert "4 x 50 steps on the sync back end" in done.stdout


def test_a_broken_environment_is_told_and_has_its_exit_code(folder: Path) -> None:
    done = check_env(folder, "own_envs:Broken", "--steps", "50")
    assert (done.returncode, done.stderr) == (ExitCode.BROKEN_ENVIRONMENT, "")
    assert done.stdout.startswith("error  observation-finite: step 1: expected finite numbers")


def test_bad_usage_has_its_exit_code(folder: Path) -> None:
    done = check_env(folder, "own_envs:Nothing")
    assert (done.returncode, done.stdout) == (ExitCode.USAGE, "")
    assert done.stderr.startswith("seedrl check-env: error: expected a callable Nothing")


def test_env_servers_have_a_checker_too() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "learner.cli.main", "check-env-server", "--command", "no-program"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (ExitCode.USAGE, "")
    assert done.stderr.startswith("seedrl check-env-server: error: cannot start 'no-program ")
