"""The env server that is checked, as a process of its own."""

import os
import shlex
import signal
import subprocess
import tempfile
from typing import Protocol, Self

from seedrl.errors import UserError
from seedrl.wire.printable import printable

_END_SECONDS = 5.0
_LAST_LINES = 5  # a usage error says what is wrong above or below its usage


class Subject(Protocol):
    """An env server that can be started and ended."""

    def start(self, address: str) -> None:
        """Starts it, for the learner at `address`."""
        ...

    def exit_code(self) -> int | None:
        """How it has ended; None while it runs, or before it was started."""
        ...

    def last_words(self) -> str:
        """The last lines that it has printed, as one; "" if there are none."""
        ...

    def ask_to_end(self) -> None:
        """Asks it to end (SIGTERM), if it runs; does not wait."""
        ...

    def stop(self) -> None:
        """Ends it, if it runs."""
        ...


class CommandNotFoundError(UserError):
    """The command cannot be started."""


class Process:
    """A command in a process group of its own. Owns it, and the file of what it prints."""

    def __init__(self, command: str, num_envs: int) -> None:
        """`command`: see `options.Options.command`."""
        self._command = command
        self._num_envs = num_envs
        self._process: subprocess.Popen[bytes] | None = None
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed at the end

    def start(self, address: str) -> None:
        """Starts it. Raises CommandNotFoundError."""
        command = self._command
        if "{learner}" not in command:
            command = f"{command} --learner {{learner}} --num-envs {{num_envs}}"
        command = command.replace("{learner}", address).replace("{num_envs}", str(self._num_envs))
        try:
            self._process = subprocess.Popen(
                shlex.split(command),
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise CommandNotFoundError(f"cannot start {command!r}: {error}") from error

    def exit_code(self) -> int | None:
        """How it has ended; None while it runs."""
        return self._process.poll() if self._process is not None else None

    def last_words(self) -> str:
        """The last lines that it has printed, each cut, between bars; "" if there are none."""
        self._output.seek(0, os.SEEK_END)
        self._output.seek(max(0, self._output.tell() - 4096))
        lines = self._output.read().decode(errors="replace").split("\n")
        words = [shown for line in lines if (shown := printable(line))]
        return " | ".join(words[-_LAST_LINES:])

    def ask_to_end(self) -> None:
        """Sends SIGTERM to it and all that it has started."""
        self._signal(signal.SIGTERM)

    def _signal(self, number: int) -> bool:
        """Whether there was anybody to signal."""
        if self._process is None:
            return False
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return False
        return True

    def stop(self) -> None:
        """Asks it to end, then kills it with all that it has started."""
        if self._process is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            if not self._signal(number):
                break
            try:
                self._process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                continue
        self._process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._output.close()
