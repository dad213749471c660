"""What takes too long is seen from another thread, once; what is idle or suspended is not."""

import math
import queue
import threading
import time
from collections.abc import Callable

import pytest

from envs_server.faults import watchdog as module
from envs_server.faults.watchdog import Begun, Watch, Watchdog
from seedrl.exit_codes import ExitCode
from tests.patience import SECONDS


class Seen:
    """What a watchdog has called, and a clock's tick for each of its looks."""

    def __init__(self) -> None:
        self.overdue: list[tuple[str, float]] = []
        self.allowed: list[float] = []
        self.grown: list[int] = []
        self._looks = threading.Semaphore(0)

    def watch(self, watch: Watch[str], *, max_memory_mib: int = 0) -> Watchdog[str]:
        return Watchdog(
            watch,
            on_overdue=lambda begun: self.overdue.append((begun.work, begun.limit_seconds)),
            on_grown=lambda mib: self.grown.append(mib) or len(self.grown) == 2,  # type: ignore[func-returns-value]
            max_memory_mib=max_memory_mib,
        )

    def work(self) -> Watch[str]:
        """What has begun there began 100 seconds ago."""
        return Watch(lambda: time.monotonic() - 100.0, self._allow)

    def look(self, number: int = 2) -> None:
        """Waits for so many looks: the first may have been under way."""
        for _ in range(number):
            assert self._looks.acquire(timeout=SECONDS)

    def _allow(self, seconds: float) -> None:
        self.allowed.append(seconds)
        if threading.current_thread().name == "watchdog":
            self._looks.release()


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.001)
    monkeypatch.setattr(module, "_LATE_SECONDS", math.inf)  # a busy machine is not suspended
    return Seen()


def test_what_takes_too_long_is_reported_once_with_where_it_is(seen: Seen) -> None:
    watch = seen.work()
    watchdog = seen.watch(watch)
    seen.look()
    watch.begin("short", 1000.0)
    seen.look()
    watch.begin("without a limit", 0.0)
    seen.look()
    watch.begin("long", 99.0)
    seen.look(4)
    watch.end()
    seen.look()
    watchdog.close()
    assert seen.overdue == [("long", 99.0)]
    assert {*seen.allowed} == {0.0, 1002.0, 101.0}
    assert seen.allowed[-1] == 0.0


def test_a_limit_holds_at_once_and_between_two_works_for_the_next_may_let_nobody_look(
    seen: Seen,
) -> None:
    watch = seen.work()
    watch.begin("builds", 600.0)
    watch.end()
    watch.begin("steps", 5.0)
    watch.end()
    watch.begin("steps", 5.0)
    watch.end()
    assert seen.allowed == [602.0, 7.0], "once for each limit that is another"
    watchdog = seen.watch(watch)
    seen.look()
    watchdog.close()
    assert {*seen.allowed[2:-1]} == {7.0}
    assert seen.allowed[-1] == 0.0


def test_of_several_threads_the_one_that_hangs_is_found(seen: Seen) -> None:
    watch = seen.work()
    may_end, has_begun = threading.Event(), threading.Event()

    def hang() -> None:
        watch.begin("hangs", 99.0)
        has_begun.set()
        may_end.wait(SECONDS)
        watch.end()

    thread = threading.Thread(target=hang)
    watch.begin("works", 1000.0)
    thread.start()
    assert has_begun.wait(SECONDS)
    watchdog = seen.watch(watch)
    seen.look(3)
    (hanging,) = [begun for begun in watch.current if begun.work == "hangs"]
    assert "hang" in [frame.f_code.co_name for frame in hanging.frames()]
    may_end.set()
    thread.join(SECONDS)
    watchdog.close()
    assert [begun.work for begun in watch.current] == ["works"]
    assert seen.overdue == [("hangs", 99.0)]
    assert {*seen.allowed[:-1]} <= {101.0, 1002.0}


def test_time_in_which_nothing_ran_does_not_count(
    seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each look finds that none was made for long: the process was suspended.
    monkeypatch.setattr(module, "_LATE_SECONDS", -math.inf)
    monkeypatch.setattr(time, "process_time", lambda: 0.0)
    watch = seen.work()
    watch.begin("long", 99.0)
    watchdog = seen.watch(watch)
    seen.look(3)
    watchdog.close()
    assert seen.overdue == []


def test_time_in_which_nobody_could_look_because_another_thread_computed_counts(
    seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LATE_SECONDS", -math.inf)
    monkeypatch.setattr(time, "process_time", time.monotonic)
    watch = seen.work()
    watch.begin("long", 99.0)
    watchdog = seen.watch(watch)
    seen.look(3)
    watchdog.close()
    assert seen.overdue == [("long", 99.0)]


def test_memory_beyond_the_limit_is_reported_until_something_is_done(seen: Seen) -> None:
    watchdog = seen.watch(seen.work(), max_memory_mib=1)
    seen.look(6)
    watchdog.close()
    assert len(seen.grown) == 2
    assert 1 < seen.grown[0] == pytest.approx(module.resident_mib(), rel=0.5)


def test_without_a_limit_memory_is_nobodys_business(seen: Seen) -> None:
    watchdog = seen.watch(seen.work())
    seen.look(3)
    watchdog.close()
    assert seen.grown == []


def test_a_process_that_is_to_end_does_not_wait_for_what_hangs(
    seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes: list[int] = []
    ended = threading.Event()

    def end(code: int) -> None:
        codes.append(code)
        ended.set()

    monkeypatch.setattr(module.os, "_exit", end)
    monkeypatch.setattr(module, "_END_SECONDS", 0.0)
    watch: Watch[str] = Watch()
    watch.begin("hangs", 1000.0)
    stops: Callable[[], bool] = lambda: True  # noqa: E731
    watchdog = Watchdog(watch, on_overdue=lambda _: None, is_stopping=stops)
    assert ended.wait(SECONDS)
    watchdog.close()
    assert codes[0] == 0


def test_a_watchdog_that_fails_ends_the_process(
    seen: Seen, capsys: pytest.CaptureFixture[str]
) -> None:
    left: queue.SimpleQueue[int] = queue.SimpleQueue()

    def fail(begun: Begun[str]) -> None:
        raise OSError("no such program")

    watch = seen.work()
    watch.begin("long", 99.0)
    watchdog = Watchdog(watch, on_overdue=fail, leave=left.put)
    assert left.get(timeout=SECONDS) == ExitCode.INTERNAL
    watchdog.close()
    assert "OSError: no such program" in capsys.readouterr().err
