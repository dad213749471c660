"""A child process that cannot outlive this one."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from learner.launch import parent_death
from seedrl.exit_codes import ExitCode

_LOG_TAIL_BYTES = 2**20  # an env server may say much after it has said why it ends


class Command(NamedTuple):
    """What to start.

    Attributes:
      name: for messages, e.g. `env server 0`.
      arguments: the command line; its first element is the path of a program.
      environment: all of its environment variables.
      log: file that its output is appended to; None inherits stdout and stderr.
      ending: signal that it gets if this process, or the thread that started it, dies. It may
        arrive several times: the kernel passes the child from one dying thread to the next.
      grace_seconds: how long it may take to end once it is asked to.
    """

    name: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    log: Path | None
    ending: signal.Signals
    grace_seconds: float = 5.0


def start(command: Command) -> subprocess.Popen[bytes]:
    """Starts a process that gets `command.ending` when this one, or this thread, dies."""
    ending = (str(os.getpid()), str(int(command.ending)))
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(command.log.open("ab")) if command.log else None
        return subprocess.Popen(
            [sys.executable, "-I", "-S", parent_death.__file__, *ending, *command.arguments],
            env=dict(command.environment),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # So that Ctrl-C reaches only this process, which decides what to do.
            process_group=0,
        )


class Child:
    """Owns one process and its group. `on_exit(child, exit code)` is called by a thread of its own.

    The exit code of a process that was killed by signal n is 128 + n, as in a shell.

    Attributes:
      log_start: where in its log begins what it writes itself, in bytes.
    """

    def __init__(self, command: Command, on_exit: Callable[["Child", int], None]):
        self.command = command
        self.log_start = _size(command.log)
        self._process = start(command)
        self._code: int | None = None
        self._watch = threading.Thread(target=self._wait, args=(on_exit,), daemon=True)
        self._watch.start()

    def send(self, signal_number: signal.Signals) -> None:
        """Sends a signal to the process; does nothing if it has ended."""
        self._process.send_signal(signal_number)

    def end(self, seconds: float) -> None:
        """Waits that long for the process to end by itself, then kills it and its group."""
        self._watch.join(max(seconds, 0))
        if self._watch.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._watch.join()

    def is_killed_by(self, signal_number: signal.Signals) -> bool:
        """Whether it has ended by that signal, for which it had no handler, or not yet one."""
        return self._code == -signal_number

    def last_line(self) -> str:
        """The last line that it has written to its log and that is not empty; "" for none."""
        return next(reversed(self.last_lines()), "")

    def last_lines(self) -> list[str]:
        """The last lines that it has written, but empty ones; none if it has no log."""
        if self.command.log is None:
            return []
        try:
            with self.command.log.open("rb") as log:
                size = os.fstat(log.fileno()).st_size
                log.seek(max(min(self.log_start, size), size - _LOG_TAIL_BYTES))
                lines = log.read().decode(errors="replace").split("\n")
        except OSError:  # somebody has removed the log: no reason to end the run
            return []
        return [line.strip() for line in lines if line.strip()]

    def _wait(self, on_exit: Callable[["Child", int], None]) -> None:
        code: int = ExitCode.INTERNAL
        try:
            code = self._awaited()
        finally:  # whoever waits for it would wait for ever
            on_exit(self, code)

    def _awaited(self) -> int:
        pid = self._process.pid
        if hasattr(os, "waitid"):  # not on macOS before Python 3.13
            # Not reaped: its number, which is its group's number too, cannot be another's yet.
            with contextlib.suppress(OSError):
                os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
                os.killpg(pid, signal.SIGKILL)
        self._code = code = self._process.wait()
        return code if code >= 0 else 128 - code


def _size(log: Path | None) -> int:
    """What others have written to it before."""
    try:
        return 0 if log is None else log.stat().st_size
    except OSError:
        return 0
