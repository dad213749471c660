"""A request to stop that cannot be passed on, or that an environment holds up."""

import subprocess
import sys

import pytest

_PROGRAM = """
import os, signal, time
from envs_server import stop
stop._GRACE_SECONDS = 0.2
asked = stop.Stop()
asked.install()
asked.on_request({cancel})
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(60)
"""


@pytest.mark.parametrize(("cancel", "code"), [("lambda: None", 0), ("lambda: 1 / 0", 70)])
def test_a_process_that_is_asked_to_stop_ends_although_an_environment_hangs(
    cancel: str, code: int
) -> None:
    command = [sys.executable, "-c", _PROGRAM.format(cancel=cancel)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert ended.returncode == code
    assert ("ZeroDivisionError" in ended.stderr) == bool(code)
