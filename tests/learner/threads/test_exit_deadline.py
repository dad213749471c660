"""The end of a process that something holds up."""

import contextlib
import os
import subprocess
import sys
import threading

import pytest

from learner.threads import exit_deadline
from learner.threads.exit_deadline import ExitDeadline, only_compiles
from seedrl.exit_codes import ExitCode
from tests.patience import SECONDS


def named(name: str, *, daemon: bool = False) -> threading.Thread:
    return threading.Thread(name=name, daemon=daemon)


@pytest.mark.parametrize(
    ("names", "daemons", "expected"),
    [
        ([], ["acting"], False),
        (["compile_0"], ["acting"], True),
        (["compile_0", "sender"], [], False),
    ],
)
def test_what_is_being_compiled_is_not_waited_for(
    names: list[str], daemons: list[str], expected: bool
) -> None:
    threads = [*map(named, names), *(named(name, daemon=True) for name in daemons)]
    assert only_compiles([threading.main_thread(), *threads]) is expected


class Left:
    """Takes the place of the end of the process."""

    def __init__(self) -> None:
        self.code: int | None = None
        self._has_left = threading.Event()

    def __call__(self, code: int) -> None:
        self.code = code
        self._has_left.set()

    def wait(self) -> int | None:
        assert self._has_left.wait(SECONDS)
        return self.code


def test_an_end_that_hangs_prints_all_stacks_and_has_a_code_of_its_own(
    capfd: pytest.CaptureFixture[str],
) -> None:
    left = Left()
    deadline = ExitDeadline(0.0, "the run did not end", then=0, leave=left)
    assert left.wait() == ExitCode.EXIT_HUNG == 79
    deadline.cancel()
    said = capfd.readouterr().err
    assert "most recent call first" in said
    # Of the newest hundred threads: those before may have left as many to this process.
    assert "in test_an_end_that_hangs_" in said or "\n...\n" in said
    assert said.endswith("learner: error: the run did not end within 0 s; all stacks are above\n")


@pytest.mark.parametrize(("seconds", "code"), [(SECONDS, 0), (0.0, 1)])
def test_a_compilation_that_is_left_does_not_change_how_a_run_ends(
    monkeypatch: pytest.MonkeyPatch, seconds: float, code: int
) -> None:
    monkeypatch.setattr(exit_deadline, "_NOT_NEEDED_SECONDS", 0.0)
    monkeypatch.setattr(exit_deadline, "only_compiles", lambda threads: True)
    left = Left()
    deadline = ExitDeadline(seconds, "the run did not end", then=code, leave=left)
    assert left.wait() == code
    deadline.cancel()


def test_who_ends_in_time_hears_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    left = Left()
    with ExitDeadline(SECONDS, "the run was not saved", code=ExitCode.STUCK, leave=left):
        pass
    assert left.code is None and capfd.readouterr().err == ""


HANGING = """
import threading
from learner.threads import hung_exit
from learner.threads.exit_deadline import ExitDeadline
hung_exit._STDERR_SECONDS = 0.1
threading.Thread(target=threading.Event().wait, name="sender").start()
ExitDeadline(0.1, "the process did not end", then=0)
"""
COMMAND = [sys.executable, "-c", HANGING]


def test_a_process_that_something_keeps_from_ending_ends() -> None:
    done = subprocess.run(COMMAND, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == ExitCode.EXIT_HUNG
    assert "threading.py" in done.stderr and "the process did not end within" in done.stderr


@pytest.mark.parametrize("is_read", [True, False], ids=["full", "closed"])
def test_a_process_whose_stderr_takes_nothing_ends_too(is_read: bool) -> None:
    reads, writes = os.pipe()
    try:
        if is_read:  # by somebody who has paused
            os.set_blocking(writes, False)
            with contextlib.suppress(BlockingIOError):
                while os.write(writes, bytes(4096)):
                    pass
            os.set_blocking(writes, True)
        else:
            os.close(reads)
        done = subprocess.run(COMMAND, stderr=writes, timeout=SECONDS)
    finally:
        os.close(writes)
        if is_read:
            os.close(reads)
    assert done.returncode == ExitCode.EXIT_HUNG
