"""A pod that is taken away: what its Job sees of that, by the scripts of the file themselves.

A Job counts a pod that has ended with 0 as done, and puts no other one in its place.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.configs.job_files import documents, replicated_jobs
from tests.configs.placed_processes import ENV_SERVER, LEARNER
from tests.patience import SECONDS

REPLACED = [
    ("jobset-gpu.yaml", "learner"),
    ("jobset-gpu.yaml", "envs"),
    ("jobset-hosts.yaml", "envs"),
    ("jobset-hosts.yaml", "envs-of-others"),
]
VARIABLES = {"LEARNER_HOST": "first", "JOBSET": "seedrl", "JOB_INDEX": "0"}


class Pod:
    """A pod's container, whose program is a stand-in."""

    def __init__(self, folder: Path, name: str, role: str, program: str) -> None:
        pod = replicated_jobs(documents(name))[role]["template"]["spec"]
        (self._container,) = pod["containers"]
        self._folder = folder
        for each in (LEARNER, ENV_SERVER):
            (folder / each).write_text(program)
            (folder / each).chmod(0o700)

    def start(self) -> subprocess.Popen[bytes]:
        path = f"{self._folder}{os.pathsep}{os.environ['PATH']}"
        return subprocess.Popen(
            self._container["command"] + self._container["args"],
            env={"PATH": path, **VARIABLES},
        )


@pytest.mark.parametrize(("own_code", "code"), [(0, 143), (74, 74)])
@pytest.mark.parametrize(("name", "role"), REPLACED)
def test_a_pod_that_is_taken_away_does_not_end_as_if_it_were_done(
    tmp_path: Path, name: str, role: str, own_code: int, code: int
) -> None:
    started = tmp_path / "started"
    os.mkfifo(started)
    program = (
        f"#!{sys.executable} -IS\n"
        "import signal, sys\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\n"
        f"with open({str(started)!r}, 'w') as file: file.write('x')\n"
        f"signal.sigwait([signal.SIGTERM]); sys.exit({own_code})\n"
    )
    pod = Pod(tmp_path, name, role, program).start()
    assert started.read_text() == "x"
    pod.terminate()
    assert pod.wait(SECONDS) == code


@pytest.mark.parametrize(("ending", "code"), [("exit 0", 0), ("exit 2", 2), ("kill -KILL $$", 137)])
@pytest.mark.parametrize(("name", "role"), REPLACED)
def test_a_pod_ends_as_its_program_does(
    tmp_path: Path, name: str, role: str, ending: str, code: int
) -> None:
    pod = Pod(tmp_path, name, role, f"#!/bin/sh\n{ending}\n").start()
    assert pod.wait(SECONDS) == code


def test_a_host_of_several_that_is_asked_to_end_has_nobody_start_it_alone() -> None:
    """The others end with it, each with 0."""
    pod = replicated_jobs(documents("jobset-hosts.yaml"))["learner"]["template"]["spec"]
    assert pod["containers"][0]["command"] == [LEARNER]
