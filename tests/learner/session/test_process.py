"""What a learner changes of its process: signals here, the rest in one of its own."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from learner.session.process import StopRequest, stop_on_signals


@pytest.fixture
def handlers() -> Iterator[None]:
    """Puts signal handlers back."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize(("reason", "by"), [("SIGINT", "SIGINT"), (None, "SIGTERM")])
def test_who_sends_a_signal_may_say_why(tmp_path: Path, reason: str | None, by: str) -> None:
    if reason is not None:
        (tmp_path / "reason").write_text(reason)
    stop = stop_on_signals(tmp_path / "reason")
    signal.raise_signal(signal.SIGTERM)
    assert stop.is_set() and stop.by == by


@pytest.mark.usefixtures("handlers")
def test_a_terminal_that_goes_asks_for_the_end() -> None:
    stop = stop_on_signals()
    signal.raise_signal(signal.SIGHUP)
    assert stop.is_set() and stop.by == "SIGHUP"


def test_an_end_that_was_asked_for_has_ten_seconds_for_what_is_nice_to_have() -> None:
    stop = StopRequest()
    assert stop.seconds_to_end() == 60.0
    stop.set()
    assert stop.seconds_to_end() == 10.0  # `seedrl train` was killed
    stop.first_signal = 100.0
    assert [stop.seconds_to_end(now) for now in (100.0, 104.0, 111.0)] == [10.0, 6.0, 0.0]


@pytest.mark.usefixtures("handlers")
def test_a_signal_counts_again_a_second_after_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    codes: list[int] = []
    monkeypatch.setattr("os._exit", codes.append)
    stop = stop_on_signals(clock=iter([5.0, 5.9, 6.0]).__next__)
    signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGTERM)
    assert stop.is_set() and codes == []
    signal.raise_signal(signal.SIGINT)
    assert codes == [143]


@pytest.mark.usefixtures("handlers")
def test_a_signal_may_interrupt_the_handler_of_another_anywhere() -> None:
    stop, before = stop_on_signals(), sys.gettrace()

    def interrupt(frame: object, event: str, arg: object) -> object:
        signal.raise_signal(signal.SIGUSR1)
        return interrupt

    sys.settrace(interrupt)
    try:
        signal.raise_signal(signal.SIGTERM)
    finally:
        sys.settrace(before)
    assert stop.is_set() and stop.first_signal is not None


def test_threads_take_turns_fast_programs_are_cached_and_flags_are_those_of_learners() -> None:
    code = (
        "import jax, os, sys; from learner.session.process import tune_process; "
        "tune_process(keeps_freed_memory=False); "
        "print(sys.getswitchinterval(), jax.config.jax_compilation_cache_dir); "
        "before = os.environ.pop('XLA_FLAGS', ''); "
        "from learner.launch.xla_settings import compile_quick_convolutions; "
        "compile_quick_convolutions(); print(before == os.environ.get('XLA_FLAGS', ''))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"XDG_CACHE_HOME": "/some/cache", "PYTHONPATH": ":".join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.split() == ["0.0005", "/some/cache/seedrl/jax", "True"], done.stderr
