"""A process whose environment hangs ends, whatever keeps it."""

import subprocess
import sys
import time

import pytest

from seedrl.exit_codes import ExitCode

_PROGRAM = """
import ctypes, time
from envs_server.hang import HangLimit
hang = HangLimit()
hang.start({memory})
for _ in range(20):
    with hang.limit(30.0):
        pass
with hang.limit({limit}):
    {work}
print("done")
"""


def _run(work: str, *, limit: float = 0.3, memory: int = 0) -> "subprocess.CompletedProcess[str]":
    program = _PROGRAM.format(work=work, limit=limit, memory=memory)
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


# Native code that keeps the interpreter's lock lets no thread of Python's run.
@pytest.mark.parametrize("work", ["time.sleep(1e6)", "ctypes.PyDLL(None).sleep(10**6)"])
def test_a_hang_ends_the_process_with_all_stacks(work: str) -> None:
    ended = _run(work)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "most recent call first" in ended.stderr and "<string>" in ended.stderr


def test_work_that_is_done_in_time_or_has_no_limit_ends_nothing() -> None:
    assert _run("time.sleep(0.7)", limit=20.0).stdout == "done\n"
    assert _run("time.sleep(1.2)", limit=0.0).stdout == "done\n"


def test_a_process_that_grows_beyond_its_limit_ends() -> None:
    start = time.monotonic()
    ended = _run("time.sleep(1e6)", limit=1e5, memory=1)
    assert ended.returncode == ExitCode.TEMPORARY
    assert "--max-memory-mib" in ended.stderr and time.monotonic() - start < 60
