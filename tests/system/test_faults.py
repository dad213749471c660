"""A killed learner: what a supervised run ends with. That a run goes on: see test_resume.py."""

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system import processes
from tests.system.processes import TINY, TRAIN, Programs

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc"),
]


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    with Programs(tmp_path) as started:
        yield started


def test_no_env_server_outlives_a_killed_learner(programs: Programs, tmp_path: Path) -> None:
    workdir = tmp_path / "run"
    run = programs(*TRAIN, "cartpole_r2d2", "--workdir", workdir, *TINY)
    log = workdir / "logs" / "env_server_1.log"
    processes.wait_for(lambda: processes.connections(log), run)
    left = processes.descendants(run.pid)
    run.signal(signal.SIGKILL)
    assert run.end() == -signal.SIGKILL
    assert len(left) == 3  # the env servers and the process that starts them
    processes.wait_until_gone(left)
