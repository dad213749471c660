"""Threads that repeat their work, and how their deaths are seen."""

import threading

import pytest

from learner.runtime.worker import ClosedError, Deaths, Worker
from tests.patience import SECONDS


def test_what_the_body_raises_is_kept_and_told_to_all() -> None:
    class Told(threading.Event):
        def set(self) -> None:
            seen.append(worker.failure)
            super().set()

    def body() -> None:
        raise error

    # Not only an Exception; and it is there before the event says so.
    seen: list[BaseException | None] = []
    failed, error = Told(), SystemExit(3)
    worker = Worker("learning", body, failed)
    worker.start()
    assert failed.wait(SECONDS)
    assert worker.stop(SECONDS)
    assert seen == [error]


def test_a_closed_neighbour_ends_a_worker_without_failure() -> None:
    failed = threading.Event()

    def body() -> None:
        raise ClosedError

    worker = Worker("acting", body, failed)
    worker.start()
    assert worker.stop(SECONDS)
    assert worker.failure is None and not failed.is_set()


def _die(error: Exception, name: str) -> None:
    def body() -> None:
        raise error

    thread = threading.Thread(target=body, name=name)
    thread.start()
    thread.join()


def test_the_first_death_is_known_and_every_one_is_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    first, second = OSError("a disk"), ValueError("a number")
    before = threading.excepthook
    with Deaths() as deaths:
        assert deaths.first is None
        _die(first, "status")
        _die(second, "sequences")
    assert deaths.first == ("status", first)
    assert threading.excepthook is before
    said = capsys.readouterr().err
    assert "OSError: a disk" in said and "ValueError: a number" in said
