"""A thread that repeats one piece of work, and whose death nobody can overlook."""

import sys
import threading
from collections.abc import Callable
from typing import NamedTuple, Self

from learner.runtime.watchdog import Heartbeat, wait_awake


class ClosedError(Exception):
    """The other side has closed: what raises it ends quietly."""


class Worker:
    """Runs `body` again and again until `stop`, or until it raises.

    Attributes:
      name: of the thread.
      failure: what it raised; `failed` is set then. The event is shared by all workers of a run, so
        that whoever waits for one waits for all.
    """

    def __init__(
        self,
        name: str,
        body: Callable[[], object],
        failed: threading.Event,
        heartbeat: Heartbeat | None = None,
    ):
        """`heartbeat`: beaten before each piece of work; None if nobody watches."""
        self.name = name
        self._heartbeat = heartbeat or Heartbeat(name)
        self.failure: BaseException | None = None
        self._body = body
        self._failed = failed
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self, timeout: float) -> bool:
        """Asks the thread to end after its present piece of work; whether it has in time.

        Time in which this process is suspended does not count.
        """
        self._stop.set()
        return self._thread.ident is None or wait_awake(self._joined, timeout)

    def _joined(self, timeout: float) -> bool:
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._heartbeat.beat()
                self._body()
        except ClosedError:
            pass  # A neighbour was closed first: the run is ending.
        except BaseException as error:
            self.failure = error
            self._failed.set()
        finally:
            self._heartbeat.rest()


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
