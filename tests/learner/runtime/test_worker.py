import threading

from learner.runtime.worker import ClosedError, Worker
from tests.patience import SECONDS


def test_the_body_is_repeated_until_the_worker_is_stopped() -> None:
    failed, thrice, calls = threading.Event(), threading.Event(), []

    def body() -> None:
        calls.append(threading.current_thread().name)
        if len(calls) >= 3:
            thrice.set()

    worker = Worker("acting", body, failed)
    worker.start()
    assert thrice.wait(SECONDS)
    assert worker.stop(SECONDS)
    num_calls = len(calls)
    assert set(calls) == {"acting"}
    assert worker.stop(0.0)
    assert len(calls) == num_calls
    assert worker.failure is None
    assert not failed.is_set()


def test_what_the_body_raises_is_kept_and_told_to_all() -> None:
    failed, error = threading.Event(), ZeroDivisionError("a defect")

    def body() -> None:
        raise error

    worker = Worker("learning", body, failed)
    worker.start()
    assert failed.wait(SECONDS)
    assert worker.stop(SECONDS)
    assert worker.failure is error


def test_a_failure_is_seen_by_whoever_is_told_of_it() -> None:
    class Told(threading.Event):
        def set(self) -> None:
            seen.append(worker.failure)
            super().set()

    def body() -> None:
        raise SystemExit(3)

    seen: list[BaseException | None] = []
    failed = Told()
    worker = Worker("acting", body, failed)
    worker.start()
    assert failed.wait(SECONDS)
    assert isinstance(seen[0], SystemExit)


def test_a_closed_neighbour_ends_a_worker_without_failure() -> None:
    failed = threading.Event()

    def body() -> None:
        raise ClosedError

    worker = Worker("acting", body, failed)
    worker.start()
    worker._thread.join(SECONDS)
    assert worker.stop(0.0)
    assert worker.failure is None
    assert not failed.is_set()


def test_stopping_says_if_the_present_piece_of_work_goes_on() -> None:
    failed, started, release = threading.Event(), threading.Event(), threading.Event()

    def body() -> None:
        started.set()
        release.wait(SECONDS)

    worker = Worker("learning", body, failed)
    worker.start()
    assert started.wait(SECONDS)
    assert not worker.stop(0.0)
    release.set()
    assert worker.stop(SECONDS)


def test_a_worker_that_never_started_is_stopped() -> None:
    assert Worker("acting", lambda: None, threading.Event()).stop(0.0)
