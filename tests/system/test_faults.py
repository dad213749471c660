"""A killed learner: what a supervised run ends with. That a run goes on: see test_resume.py."""

import os
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


def test_a_killed_learner_ends_a_supervised_run_with_its_exit_code(
    programs: Programs, tmp_path: Path
) -> None:
    workdir = tmp_path / "run"
    run = programs(*TRAIN, "cartpole_r2d2", "--workdir", workdir, *TINY)
    log = workdir / "logs" / "env_server_1.log"
    processes.wait_for(lambda: processes.connections(log), run)
    (learner,) = processes.descendants(run.pid, "-m learner ")
    left = processes.descendants(run.pid)
    os.kill(learner, signal.SIGKILL)
    assert run.end() == 128 + signal.SIGKILL
    assert len(left) == 3
    processes.wait_until_gone(left)
