"""CPU seconds of a process and its descendants."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from learner.bench.measure.cpu import descendant_bytes, tree_bytes, tree_seconds

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
# Runs another and waits for it.
CHILD = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
# Have burnt CPU, or hold memory; say so, and wait.
BURNER = """
import sys, time
while time.process_time() < 0.2: pass
print("done", flush=True)
sys.stdin.read()
"""
HOLDER = "import sys; held = b'x' * 50_000_000; print('done', flush=True); sys.stdin.read()"


@contextlib.contextmanager
def family(of_grandchild: str) -> Iterator[int]:
    """A process that has started one that runs `of_grandchild` up to its "done"; its number.

    Everything below it is this test's. Below pytest other tests' processes come and go.
    """
    command = [sys.executable, "-c", CHILD, of_grandchild]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None and child.stdout is not None
        assert child.stdout.readline() == b"done\n"
        yield child.pid
        child.stdin.close()


def test_descendants_count() -> None:
    with family(BURNER) as child:
        assert 0.2 <= tree_seconds(child) < 1.5


def test_a_process_without_children_is_itself() -> None:
    code = "import os, time; from learner.bench.measure.cpu import tree_seconds\n"
    code += "while time.process_time() < 0.3: pass\n"
    code += "print(tree_seconds(os.getpid()), time.process_time())"
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    measured, exact = map(float, done.stdout.split())
    assert abs(measured - exact) < 0.05


def test_memory_that_a_child_takes_is_its_own_and_counts_for_the_tree() -> None:
    with family(HOLDER) as parent:
        of_child, of_both = descendant_bytes(parent), tree_bytes(parent)
    assert 50e6 < of_child < 80e6
    assert of_child + 2e6 < of_both < of_child + 30e6
