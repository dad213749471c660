"""Exit codes."""

import errno
import importlib.util
import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from seedrl.errors import AddressInUseError, CheckpointError, ConfigError
from seedrl.programs.outcome import exit_code
from seedrl.programs.signals import ending_signals
from tests.patience import SECONDS


def raising(error: BaseException) -> Callable[[], int]:
    def command() -> int:
        raise error

    return command


def test_a_program_outlives_its_terminal_by_wish() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        assert ending_signals() == [signal.SIGTERM, signal.SIGINT]
    finally:
        signal.signal(signal.SIGHUP, before)
    assert signal.SIGHUP in ending_signals()


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ConfigError("two\nlines"), 2, "test: error: two lines\n"),
        (CheckpointError("x"), 74, "test: error: x\n"),
        (AddressInUseError("x"), 75, "test: error: x\n"),
        (KeyboardInterrupt(), 143, ""),
        *(
            (
                OSError(n, "full", "a.jsonl"),
                74,
                f"error: cannot read or write: [Errno {n}] full: 'a.jsonl'",
            )
            for n in (errno.ENOSPC, errno.EFBIG, errno.EIO)
        ),
        (FileNotFoundError(errno.ENOENT, "gone"), 2, "test: error: the current directory has been"),
        (ZeroDivisionError("oops"), 70, "ZeroDivisionError: oops\ntest: internal error"),
    ],
)
def test_an_error_is_a_line_and_its_code(
    error: BaseException, code: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(raising(error), prog="test") == code
    assert line in capsys.readouterr().err


def test_a_result_and_the_end_that_a_command_wants_are_passed_on() -> None:
    assert exit_code(lambda: 75, prog="test") == 75
    with pytest.raises(SystemExit):
        exit_code(raising(SystemExit(0)), prog="test")


def test_children_can_be_waited_for_if_the_parent_ignored_their_ends() -> None:
    """`seedrl train` never learned that its env servers had ended."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        command = [sys.executable, "-c", "raise SystemExit(3)"]
        assert exit_code(lambda: subprocess.run(command, check=False).returncode, prog="test") == 3
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_a_reader_that_goes_away_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)

        def command() -> int:
            print("what nobody reads")
            return 3

        assert exit_code(command, prog="test") == 128 + signal.SIGPIPE
        # The interpreter's own flush at its end would complain otherwise.
        print("more of it", flush=True)


def test_a_terminal_that_lacks_a_character_shows_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown, encoding="latin-1"))

    def command() -> int:
        print("± 1 – 2")
        return 0

    assert exit_code(command, prog="test") == 0
    assert shown.getvalue().decode("latin-1") == "± 1 ? 2\n"


def test_a_missing_package_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert exit_code(raising(ModuleNotFoundError("x", name="jax")), prog="test") == 2
    error = capsys.readouterr().err
    assert error.startswith("test: error: ") and "pip install 'seedrl[learner]'" in error
    assert error.count("\n") == 1


_LEAVING = """
import logging
from seedrl.programs.outcome import exit_code, leave

def write():
    print("what it has to say")
    return 3

class Raising(logging.Handler):
    def flush(self):
        raise RuntimeError("no log")

{body}
"""


def _left(body: str, stdout: Any = subprocess.PIPE) -> "subprocess.CompletedProcess[str]":
    """A process that ends itself by `leave`."""
    command = [sys.executable, "-c", _LEAVING.format(body=body)]
    pipe = subprocess.PIPE
    environment = {**os.environ, "PYTHONUNBUFFERED": ""}  # else nothing is left to be flushed
    return subprocess.run(
        command, stdout=stdout, stderr=pipe, env=environment, text=True, timeout=SECONDS
    )


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="it is Linux that has it")
def test_a_full_disk_under_stdout_is_one_line_and_its_code() -> None:
    with open("/dev/full", "w") as full:
        ended = _left('leave(exit_code(write, prog="test"))', full)
    assert ended.returncode == 74
    assert ended.stderr == "test: error: cannot read or write: [Errno 28] No space left on device\n"


def test_a_program_whose_output_was_closed_ends_as_others_do() -> None:
    command = "import sys; from seedrl.programs.outcome import *\n"
    command += "raise SystemExit(exit_code(lambda: print(sys.stderr.fileno()) or 5, prog='test'))"
    closed = [sys.executable, "-c", command]
    ended = subprocess.run(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *closed], check=False)
    assert ended.returncode == 5
