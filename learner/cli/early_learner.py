"""A learner's process that is started before its command line is known."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Self

from learner.launch import env_servers
from learner.launch.child import Command, start


class EarlyLearner:
    """Imports in a process of its own what this one needs itself to read the config: jax, mostly.

    One after the other, both took as long as all else before the first action. Leaving kills the
    process if it never got its command line; otherwise whoever supervises it ends it.

    Attributes:
      command, process: what runs.
    """

    def __init__(self) -> None:
        self.command = Command(
            name="learner",
            arguments=(sys.executable, "-m", "learner.early"),
            environment=env_servers.child_environment(),
            log=None,
            ending=signal.SIGUSR1,
        )
        self.process = start(self.command, subprocess.PIPE)
        self._has_begun = False

    def begin(self, words: Sequence[str]) -> None:
        """Gives it the words of its command line, and this process's environment variables."""
        command = {"words": list(words), "environment": dict(os.environ)}
        self._has_begun = True
        assert self.process.stdin is not None
        # If it has died, its exit code says so.
        with contextlib.suppress(OSError), self.process.stdin:
            self.process.stdin.write(json.dumps(command).encode() + b"\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._has_begun:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()
