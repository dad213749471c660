"""What the allocator does with freed memory, in a process of its own."""

import ctypes
import subprocess
import sys

import pytest

# Not numpy's memory, for which it asks for huge pages. In a thread, because glibc treats those
# unlike the main one.
FAULTS = """
import resource, threading
from learner.launch.malloc_settings import keep_freed_memory

size = 100 * 2**20

def count():
    for _ in range(2):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        block = b"x" * size
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
        del block
    print(faults * resource.getpagesize() / 2**20)

keep_freed_memory()
thread = threading.Thread(target=count)
thread.start()
thread.join()
"""

# Of 100 MiB in small blocks each hundredth is kept, by a thread, which has an arena of its own.
RESIDENT = """
import resource, threading
from pathlib import Path
from learner.launch.malloc_settings import return_freed_memory

def resident_mib():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20

def count():
    blocks = [b"x" * 50_000 for _ in range(2_000)]
    kept = blocks[::100]
    del blocks
    before = resident_mib()
    return_freed_memory()
    print(before - resident_mib())

thread = threading.Thread(target=count)
thread.start()
thread.join()
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="not glibc")
def test_freed_memory_between_what_is_kept_is_returned() -> None:
    command = [sys.executable, "-c", RESIDENT]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert float(done.stdout) > 80


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="not glibc")
def test_freed_memory_is_used_again() -> None:
    command = [sys.executable, "-c", FAULTS]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    # Of the second block's 100 MiB, what the kernel had to give anew.
    assert float(done.stdout) < 4
