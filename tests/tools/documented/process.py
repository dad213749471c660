"""A documented command as a process that ends in bounded time."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

_PAUSE_SECONDS = 0.1


class Process:
    """Owns a process and its children; `close` leaves none of them."""

    def __init__(self, words: str, folder: Path, log: Path, environment: dict[str, str]) -> None:
        self._start = time.monotonic()
        self.log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                # The process that is interrupted is the command's own, not a shell's.
                f"exec {words}",
                shell=True,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def seconds(self) -> float:
        """Since it was started."""
        return time.monotonic() - self._start

    @property
    def code(self) -> int | None:
        """The exit code; None while it runs."""
        return self._process.poll()

    def wait(self, seconds: float, is_enough: Callable[[], bool] = lambda: False) -> bool:
        """Waits until it has ended, or `is_enough()`, or that long; whether it has ended."""
        deadline = time.monotonic() + seconds
        while self.code is None and time.monotonic() < deadline and not is_enough():
            time.sleep(_PAUSE_SECONDS)
        return self.code is not None

    def interrupt(self, number: signal.Signals = signal.SIGINT) -> None:
        """Ctrl-C: the signal goes to all that the terminal runs."""
        if self.code is None:
            os.killpg(self._process.pid, number)

    def close(self) -> None:
        """Ends whatever is left."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        self._process.wait()

    def output(self) -> str:
        """What it has printed so far."""
        return self.log.read_text(errors="replace")
