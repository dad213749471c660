"""Standing back concerns all threads of a process, and cannot be taken back: in one of its own."""

import subprocess
import sys

import pytest

from tests.patience import SECONDS

_PROGRAM = """
import os, threading
from seedrl.programs.niceness import stand_back

def all_threads():
    threads = os.listdir("/proc/self/task")
    return sorted(os.getpriority(os.PRIO_PROCESS, int(thread)) for thread in threads)

may_end = threading.Event()
threading.Thread(target=may_end.wait, daemon=True).start()
before = os.getpriority(os.PRIO_PROCESS, 0)
stand_back(before)
print(*(nice - before for nice in all_threads()))
stand_back(before + 1)
threading.Thread(target=may_end.wait, daemon=True).start()
print(*(nice - before for nice in all_threads()))
stand_back(before)
print(*(nice - before for nice in all_threads()))
may_end.set()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="a niceness of each thread is Linux's")
def test_all_threads_stand_back_and_none_comes_forward_again() -> None:
    command = [sys.executable, "-c", _PROGRAM]
    ended = subprocess.run(command, check=True, capture_output=True, text=True, timeout=SECONDS)
    assert ended.stdout.splitlines() == ["0 0", "1 1 1", "1 1 1"]
