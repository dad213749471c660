"""Threads that die of an exception which nobody catches."""

import sys
import threading
from typing import NamedTuple, Self


class Death(NamedTuple):
    """Which thread has died, and of what."""

    thread: str
    error: BaseException


class Deaths:
    """Inside its `with`, notes the first thread of this process that dies; prints its traceback.

    Whoever starts a thread may watch it better: this is for all that nobody watches. What dies
    before a run has begun, while it waits for env servers, ends it too.

    Attributes:
      first: the first death; None as long as all live.
    """

    def __init__(self) -> None:
        self.first: Death | None = None
        self._before = threading.excepthook

    def __enter__(self) -> Self:
        self._before, threading.excepthook = threading.excepthook, self._note
        return self

    def __exit__(self, *_: object) -> None:
        threading.excepthook = self._before

    def _note(self, arguments: threading.ExceptHookArgs) -> None:
        if self.first is None and arguments.exc_value is not None:
            name = "" if arguments.thread is None else arguments.thread.name
            self.first = Death(name, arguments.exc_value)
        # Not the hook before: it may do nothing, and this one is the last to know.
        sys.excepthook(
            arguments.exc_type, arguments.exc_value or SystemExit(), arguments.exc_traceback
        )
