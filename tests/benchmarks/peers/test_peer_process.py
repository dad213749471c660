"""A peer's program answers line by line, and never outlives or stops the one who asks."""

import os
import sys
import time
from pathlib import Path

import pytest

from tests.benchmarks.peers.peer_process import PeerProcess
from tests.benchmarks.peers.virtual_environment import PROGRAMS

# Prints on stdout, as libraries do, before each answer.
ECHO = """
import os
from answering import commands
for command, answer in commands():
    print("noise")
    answer(got=command, pid=os.getpid())
"""


@pytest.fixture
def echo(tmp_path: Path) -> tuple[str | Path, ...]:
    program = tmp_path / "echo.py"
    program.write_text(f"import sys\nsys.path.insert(0, {str(PROGRAMS)!r})\n{ECHO}")
    return sys.executable, program


def test_each_command_gets_its_answer_and_nothing_that_was_printed(
    echo: tuple[str | Path, ...],
) -> None:
    with PeerProcess(echo, patience_seconds=60) as process:
        assert process.ask(a=1)["got"] == {"a": 1}
        assert process.ask(b=[2.5])["got"] == {"b": [2.5]}


def test_a_program_that_dies_is_quoted() -> None:
    command = (sys.executable, "-c", "input(); raise ValueError('out of ideas')")
    with (
        PeerProcess(command, patience_seconds=60) as process,
        pytest.raises(RuntimeError, match="(?s)gave no answer to .*out of ideas"),
    ):
        process.ask(measure="x")


def test_a_program_that_hangs_is_killed_with_all_that_it_has_started() -> None:
    program = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
print(f'{{"child": {child.pid}}}', flush=True)
time.sleep(1000)
"""
    with PeerProcess((sys.executable, "-c", program), patience_seconds=60) as process:
        child = process.ask()["child"]
    with (
        PeerProcess((sys.executable, "-c", program), patience_seconds=0.1) as process,
        pytest.raises(RuntimeError, match="within 0.1 seconds"),
    ):
        process.ask()
        process.ask()
    assert comes_to(child, "Z-")


def test_a_frozen_peer_moves_only_while_it_is_let(echo: tuple[str | Path, ...]) -> None:
    with PeerProcess(echo, patience_seconds=60) as process:
        pid = process.ask()["pid"]
        process.freeze()
        assert comes_to(pid, "T")
        with process.running():
            assert process.ask(a=1)["got"] == {"a": 1}
        assert comes_to(pid, "T")


def comes_to(pid: int, states: str) -> bool:
    """Whether a process soon is in one of these states, as proc(5) has them; `-` if it is gone."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            state = "-"
        if state in states:
            return True
        os.sched_yield()
    return False


def test_our_own_packages_are_not_in_its_way(
    echo: tuple[str | Path, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    command = (sys.executable, "-c", "import os; print(int('PYTHONPATH' in os.environ))")
    with PeerProcess(command, patience_seconds=60) as process:
        assert process.ask() == 0
