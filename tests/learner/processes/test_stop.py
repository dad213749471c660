"""Signals that ask a run to end."""

import signal
import subprocess
import sys

import pytest

from learner.processes.stop import stop_on_signals
from tests.patience import SECONDS


def test_a_signal_counts_again_a_second_after_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    codes: list[int] = []
    monkeypatch.setattr("os._exit", codes.append)
    with stop_on_signals(clock=iter([5.0, 5.9, 6.0]).__next__) as stop:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        assert stop.is_set() and stop.by == "SIGTERM" and codes == []
        signal.raise_signal(signal.SIGINT)
    assert codes == [143]


def test_a_signal_may_interrupt_the_handler_of_another_anywhere() -> None:
    before = sys.gettrace()

    def interrupt(frame: object, event: str, arg: object) -> object:
        signal.raise_signal(signal.SIGHUP)
        return interrupt

    with stop_on_signals() as stop:
        sys.settrace(interrupt)
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            sys.settrace(before)
    assert stop.is_set() and stop.first_signal is not None


def test_the_first_reason_to_stop_counts_and_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with stop_on_signals("the command") as stop:
        stop.set("the env servers failed")
        signal.raise_signal(signal.SIGTERM)
    assert (stop.by, stop.command) == ("the env servers failed", "the command")
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("code", [0, 1])
def test_a_signal_after_the_end_of_a_run_keeps_its_exit_code(code: int) -> None:
    program = (
        "import os, sys; from learner.processes.stop import end_with, stop_on_signals\n"
        "class Late:\n"
        "    def __del__(self, kill=os.kill, pid=os.getpid()):\n"
        "        kill(pid, 15)  # while the interpreter shuts down, if it does\n"
        "late = Late()\n"
        "with stop_on_signals(): pass\n"
        f"end_with({code})\n"
        f"sys.exit({code})\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=SECONDS)
    assert (done.returncode, done.stdout) == (code, b"")


def test_once_a_run_has_its_exit_code_signals_change_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    codes: list[int] = []
    monkeypatch.setattr("os._exit", codes.append)
    with stop_on_signals(clock=iter([5.0, 6.0]).__next__) as stop:
        stop.exit_code = 1
        signal.raise_signal(signal.SIGTERM)
        assert not stop.is_set() and codes == []
        signal.raise_signal(signal.SIGTERM)  # does not want to wait for the rest
    assert codes == [1]
