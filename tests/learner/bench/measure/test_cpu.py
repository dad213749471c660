"""CPU seconds of a process and its descendants."""

import os
import subprocess
import sys

import pytest

from learner.bench.measure.cpu import descendant_bytes, tree_bytes, tree_seconds

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
# Burns CPU in a grandchild, says so, and waits.
GRANDCHILD = """
import sys, time
while time.process_time() < 0.2: pass
print("done", flush=True)
sys.stdin.read()
"""
CHILD = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"


def test_descendants_count() -> None:
    before = tree_seconds(os.getpid())
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, GRANDCHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None and child.stdout.readline() == b"done\n"
        of_the_child = tree_seconds(child.pid)
        grown = tree_seconds(os.getpid()) - before
        assert child.stdin is not None
        child.stdin.close()
    assert 0.15 < of_the_child <= grown + 0.02
    assert grown < of_the_child + 0.5


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
    before = descendant_bytes(os.getpid())
    code = "import sys; held = b'x' * 50_000_000; print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdout.readline() == b"\n"
        taken = descendant_bytes(os.getpid()) - before
        assert tree_bytes(os.getpid()) > descendant_bytes(os.getpid()) + 10e6  # this process
        assert child.stdin is not None
        child.stdin.close()
    assert 50e6 < taken < 80e6
