"""Processes that measure on request."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, Self


class MeasuringProcesses:
    """Owns processes of one command; used by one thread.

    Each says when it is ready, with a line of JSON; answers a line with a number of seconds, for
    which it measures, with another; and ends with its input. Entering waits until all are ready.

    Attributes:
      ready: what each said when it was ready.
    """

    def __init__(self, module: str, *flags: str, environment: Mapping[str, str], copies: int = 1):
        """`python -m module flags`, `copies` times."""
        self._name = module
        self._command = (sys.executable, "-m", module, *flags)
        self._environment, self._copies = environment, copies
        self._processes: list[subprocess.Popen[str]] = []
        self.ready: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.callback(self.close)
            for _ in range(self._copies):
                self._processes.append(
                    subprocess.Popen(
                        self._command,
                        env=self._environment,
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        text=True,
                    )
                )
            self.ready = [self._read(process) for process in self._processes]
            stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def ask(self, seconds: float) -> list[dict[str, Any]]:
        """Lets all measure at once; the answer of each. Raises RuntimeError if one has ended."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"{seconds}\n")
            process.stdin.flush()
        return [self._read(process) for process in self._processes]

    def close(self) -> None:
        """Ends the processes' input, and waits for them."""
        for process in self._processes:
            with contextlib.suppress(BrokenPipeError):
                process.communicate()

    def _read(self, process: subprocess.Popen[str]) -> dict[str, Any]:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._name} ended with {process.wait()}; see above")
        answer: dict[str, Any] = json.loads(line)
        return answer
