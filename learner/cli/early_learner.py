"""A learner's process that is started before its command line is known."""

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Self

from learner.cli import fleet
from learner.cli.child import Command, start


class EarlyLearner:
    """Imports in a process of its own what this one needs itself to read the config: jax, mostly.

    One after the other, both took as long as all else before the first action. Owns the process
    until `begin` hands it over; leaving kills it if that never came.
    """

    def __init__(self) -> None:
        self.command = Command(
            name="learner",
            arguments=(sys.executable, "-m", "learner.early"),
            environment=fleet.child_environment(),
            log=None,
            ending=signal.SIGUSR1,
        )
        self._process: subprocess.Popen[bytes] | None = start(self.command, subprocess.PIPE)

    def begin(self, words: Sequence[str]) -> subprocess.Popen[bytes]:
        """Gives it the words of its command line; whoever takes the process ends it. Once only."""
        process, self._process = self._process, None
        assert process is not None and process.stdin is not None
        # If it has died, its exit code says so.
        with contextlib.suppress(OSError), process.stdin:
            process.stdin.write(json.dumps(list(words)).encode() + b"\n")
        return process

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
