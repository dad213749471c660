"""The end of a process that something holds up."""

import subprocess
import sys
import threading

import pytest

from learner.runtime import watchdog
from learner.runtime.watchdog import AwakeClock, ExitDeadline, Watchdog, only_compiles, wait_awake
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
    assert left.wait() == ExitCode.TEMPORARY
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
    monkeypatch.setattr(watchdog, "_NOT_NEEDED_SECONDS", 0.0)
    monkeypatch.setattr(watchdog, "only_compiles", lambda threads: True)
    left = Left()
    deadline = ExitDeadline(seconds, "the run did not end", then=code, leave=left)
    assert left.wait() == code
    deadline.cancel()


def test_who_ends_in_time_hears_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    left = Left()
    with ExitDeadline(SECONDS, "the run was not saved", code=ExitCode.TEMPORARY, leave=left):
        pass
    assert left.code is None and capfd.readouterr().err == ""


HANGING = """
import threading
from learner.runtime import watchdog
from learner.runtime.watchdog import ExitDeadline
threading.Thread(target=threading.Event().wait, name="sender").start()
ExitDeadline(0.1, "the process did not end", then=0)
"""
COMMAND = [sys.executable, "-c", HANGING]


def test_a_process_that_something_keeps_from_ending_ends() -> None:
    done = subprocess.run(COMMAND, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == ExitCode.TEMPORARY
    assert "threading.py" in done.stderr and "the process did not end within" in done.stderr


def test_what_is_late_was_suspended_and_counts_little() -> None:
    times = iter([100.0, 100.1, 100.6, 3700.0, 3700.1])
    clock = AwakeClock(times.__next__)
    assert clock.seconds == 0.0
    assert [round(clock.tick(), 3) for _ in range(4)] == [0.1, 0.6, 1.6, 1.7]
    assert round(clock.seconds, 3) == 1.7


def test_who_waits_is_given_the_rest_of_its_time_after_that() -> None:
    times = iter([0.0, 0.0, 3600.0, 3600.9, 3601.5, 3602.0])
    timeouts: list[float] = []

    def wait(seconds: float) -> bool:
        timeouts.append(round(seconds, 3))
        return False

    assert not wait_awake(wait, 2.0, times.__next__)
    assert timeouts == [0.2, 0.2, 0.1, 0.0]
    assert list(times) == [3602.0]


def test_a_wait_ends_with_its_success() -> None:
    answers = iter([False, True, False])
    assert wait_awake(lambda seconds: next(answers), 60.0, lambda: 0.0)
    assert wait_awake(lambda seconds: True, 0.0)
    assert next(answers) is False


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
    assert watched.passed(5.0) == []
    learning.beat()
    assert watched.passed(1.0) == ["acting"]
    acting.rest()
    learning.rest()
    assert watched.passed(60.0) == []


def test_what_was_suspended_with_the_whole_process_did_not_hang() -> None:
    watched = Watched()
    watched.watchdog.heartbeat("acting").beat()
    watched.passed(1.0)
    watched.seconds += 3600.0
    assert watched.passed(1.0) == []


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


def test_a_watchdog_looks_by_itself_until_it_is_stopped() -> None:
    looks = threading.Event()
    watching = Watchdog(lambda _: looks.set())
    watching.start()
    assert looks.wait(SECONDS)
    watching.stop()
    Watchdog(lambda _: None).stop()  # one that never began
