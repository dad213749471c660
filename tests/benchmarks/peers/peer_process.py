"""A peer's program in its own virtual environment, which follows orders line by line."""

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from tests.benchmarks.peers.virtual_environment import variables


class PeerProcess:
    """Owns a process and all that it starts, which write to our stderr. Used by one thread.

    It runs in a temporary folder of its own, which is removed with what libraries leave there.

    A command is a JSON object on a line of its stdin, the answer one on a line of its stdout.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        patience_seconds: float,
        environment: Mapping[str, str] | None = None,
    ):
        """Every answer must come within `patience_seconds`; `environment` is added to ours."""
        self._command = [str(word) for word in command]
        self._patience_seconds = patience_seconds
        self._environment = {**variables(), **(environment or {})}

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(
            prefix="seedrl-peers-", ignore_cleanup_errors=True
        )
        self._process = subprocess.Popen(
            self._command,
            cwd=self._folder.name,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        return self

    def __exit__(self, *error: object) -> None:
        self._kill()
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()
        self._folder.cleanup()

    def ask(self, **command: Any) -> dict[str, Any]:
        """Sends a command and waits for its answer. Raises RuntimeError if none comes in time."""
        assert self._process.stdin is not None and self._process.stdout is not None
        # A process that is killed closes its stdout, which ends the wait below.
        timer = threading.Timer(self._patience_seconds, self._kill)
        timer.start()
        try:
            with contextlib.suppress(BrokenPipeError):
                print(json.dumps(command), file=self._process.stdin, flush=True)
            line = self._process.stdout.readline()
        finally:
            timer.cancel()
        if not line:
            seconds = f"{self._patience_seconds:g} seconds"
            raise RuntimeError(f"{self._command} ended, or gave no answer within {seconds}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def prepare(self, **command: Any) -> None:
        """As `ask`; then all its processes are frozen, except in `rate`: some peers never rest."""
        self.ask(**command)
        self._signal(signal.SIGSTOP)

    def rate(self, **command: Any) -> float:
        """Lets it run for the `rate` that it answers with. Raises RuntimeError as `ask`."""
        self._signal(signal.SIGCONT)
        try:
            return float(self.ask(**command)["rate"])
        finally:
            self._signal(signal.SIGSTOP)

    def _kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        # The whole group: peers start processes of their own, and some of them do not end by
        # themselves.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)
