"""The other learners of a run on several hosts, where all of them are processes of this machine."""

import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Self

from learner.launch.child import Child, Command

# All of them together. They end with the first learner: this is for one that hangs.
_GRACE_SECONDS = 30.0


class OtherHosts:
    """Owns all learners of a run but the first. Entering starts them, leaving ends them.

    Attributes:
      code: the first exit code other than 0; 0 if there was none.
    """

    def __init__(
        self,
        commands: Sequence[Command],
        on_failure: Callable[[], object],
        say: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True),
    ):
        """`on_failure` is called, by another thread, when one has ended with an error."""
        self._commands, self._on_failure, self._say = commands, on_failure, say
        self._children: list[Child] = []
        self._is_ending = False
        self.code = 0

    def __enter__(self) -> Self:
        try:
            for command in self._commands:
                self._children.append(Child(command, self._ended))
        except BaseException:
            self._end_all(0.0)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end_all(_GRACE_SECONDS)

    def _end_all(self, seconds: float) -> None:
        self._is_ending = True
        for child in self._children:
            # Those that have met the first learner end with it. One that has not dials it, for
            # many minutes, unless it is told to end.
            child.send(signal.SIGTERM)
        deadline = time.monotonic() + seconds
        for child in self._children:
            child.end(deadline - time.monotonic())

    def _ended(self, child: Child, code: int) -> None:
        if self._is_ending and child.is_killed_by(signal.SIGTERM):
            return  # ours: it did not listen for it yet, or Python was about to end
        if code and not self.code:
            self.code = code
            name, log = child.command.name, child.command.log
            self._say(f"{name} ended with {code}; its log, {log}, ends: {child.last_line()}")
            self._on_failure()
