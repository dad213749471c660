"""`seedrl check-env`, on an environment in the folder that it is called in.

The command becomes the checker (`envs_server.conformance`). That what passes is said to pass is
tried in a process by `tests/test_readme.py`.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from envs_server.conformance.__main__ import main
from seedrl.exit_codes import ExitCode
from tests import own_process

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


@pytest.fixture
def checked(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., tuple[int, str, str]]]:
    """The checker in this process: its exit code and what it writes."""
    monkeypatch.syspath_prepend(folder)

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(list(arguments))
        return code, *capsys.readouterr()

    with own_process.imported_anew("own_envs"):
        yield run


def test_a_sound_environment_passes(checked: Callable[..., tuple[int, str, str]]) -> None:
    code, out, error = checked("own_envs:Sound", "--steps", "50")
    assert (code, error) == (ExitCode.OK, "")
    assert out.startswith("own_envs:Sound passes\n")
    assert "4 x 50 steps on the sync back end" in out


def test_a_broken_environment_is_told_and_has_its_exit_code(folder: Path) -> None:
    done = check_env(folder, "own_envs:Broken", "--steps", "50")
    assert (done.returncode, done.stderr) == (ExitCode.BROKEN_ENVIRONMENT, "")
    assert done.stdout.startswith("error  observation-finite: step 1: expected finite numbers")


def test_bad_usage_has_its_exit_code(checked: Callable[..., tuple[int, str, str]]) -> None:
    code, out, error = checked("own_envs:Nothing")
    assert (code, out) == (ExitCode.USAGE, "")
    assert error.startswith("seedrl check-env: error: expected a callable Nothing")


def test_env_servers_have_a_checker_too() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "learner.cli.main", "check-env-server", "--command", "no-program"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (ExitCode.USAGE, "")
    assert done.stderr.startswith("seedrl check-env-server: error: cannot start 'no-program ")
