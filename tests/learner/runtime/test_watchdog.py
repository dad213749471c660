"""Hangs: which thread is late, and the end of a process that something holds up."""

import subprocess
import sys

import pytest

from learner.runtime import watchdog
from learner.runtime.watchdog import Watchdog
from seedrl.exit_codes import ExitCode
from tests.patience import SECONDS

# A thread that is no daemon keeps Python from ending; `run` says what is done about it.
_HANGING = """
import threading
threading.Thread(target=threading.Event().wait, name="sender").start()
"""
_UNSAVED = """
from learner.runtime.watchdog import exit_deadline
with exit_deadline(0.1, "the run was not saved"):
    threading.Event().wait()
"""
_UNDRAWN = """
from learner.runtime.watchdog import exit_deadline, exit_now
with exit_deadline(0.1, "saved; nothing was drawn", 1, end=exit_now):
    threading.Event().wait()
"""
_SAVED = """
from learner.processes.stop import end_with
end_with(1)
"""


@pytest.mark.parametrize(
    ("run", "code"), [(_UNSAVED, ExitCode.TEMPORARY), (_UNDRAWN, 1), (_SAVED, 1)]
)
def test_a_process_that_something_keeps_from_ending_ends(run: str, code: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _HANGING + run], capture_output=True, text=True, timeout=SECONDS
    )
    assert done.returncode == code
    has_stacks = "threading.py" in done.stderr and "the run was not saved" in done.stderr
    assert has_stacks == (run is _UNSAVED)
    if run is _UNDRAWN:
        assert done.stderr == "saved; nothing was drawn within 0 s\n"


class EndedError(Exception):
    """The process would be gone."""


class Watched:
    """A watchdog whose clock is `seconds`, and what it ended the process for."""

    def __init__(self) -> None:
        self.seconds, self.is_compiling, self.late = 0.0, False, list[str]()
        self.watchdog = Watchdog(
            self._end,
            is_compiling=lambda: self.is_compiling,
            compile_seconds=100.0,
            clock=lambda: self.seconds,
        )

    def _end(self, watchdog: Watchdog) -> None:
        self.late = watchdog.late(5.0)

    def passed(self, seconds: float) -> list[str]:
        """Who is late by then, for a watchdog that looks twice a second."""
        for _ in range(int(2 * seconds)):
            self.seconds += 0.5
            self.watchdog.look()
        return self.late


def test_a_thread_at_one_piece_of_work_for_too_long_is_late() -> None:
    watched = Watched()
    acting, learning = map(watched.watchdog.heartbeat, ("acting", "learning"))
    assert watched.passed(60.0) == []  # nothing has begun
    for beat in (acting, learning):
        beat.beat()
    watched.seconds += 3600.0  # the whole process was suspended, which is no hang
    assert watched.passed(4.0) == []
    learning.beat()
    assert watched.passed(2.0) == ["acting"]
    acting.rest()
    learning.rest()
    assert watched.passed(60.0) == []


def test_only_compiling_has_a_deadline_while_programs_are_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def end(text: str, code: ExitCode) -> None:
        raise EndedError(code)

    monkeypatch.setattr(watchdog, "exit_hung", end)
    watched = Watched()
    watched.watchdog.heartbeat("acting").beat()
    watched.is_compiling = True
    assert watched.passed(99.0) == []
    watched.is_compiling = False
    assert watched.passed(5.0) == []  # its time begins when nothing is compiled any more
    assert watched.passed(1.0) == ["acting"]
    watched.is_compiling = True
    with pytest.raises(EndedError) as caught:
        watched.passed(102.0)
    assert caught.value.args == (ExitCode.TEMPORARY,)
