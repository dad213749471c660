import subprocess
import sys

import pytest

from tests.system.processes import wait_until_gone

_PROGRAM = r"""
import subprocess, sys
from envs_server.faults import self_restart

CHILD = (
    "import subprocess; child = subprocess.Popen(['sleep', '600'])\n"
    "print(child.pid, flush=True); child.wait()"
)
child = subprocess.Popen(
    [sys.executable, "-c", CHILD], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
)
print(child.pid, int(child.stdout.readline()), flush=True)
self_restart.starter(["--help"])("")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="children are found below /proc")
def test_what_environments_have_started_does_not_outlive_the_process_that_begins_again() -> None:
    ran = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True)
    started, _, rest = ran.stdout.partition("\n")
    assert (ran.returncode, "usage: " in rest) == (0, True)
    wait_until_gone(set(map(int, started.split())))
