"""A thread that repeats one piece of work, and whose death ends the run."""

import sys
import threading
from collections.abc import Callable
from typing import Self

from learner.runtime.watchdog import Heartbeat


class ClosedError(Exception):
    """The other side has closed: a thread that raises it ends quietly."""


class Worker:
    """Runs `body` again and again until `stop`, or until it raises."""

    def __init__(
        self,
        name: str,
        body: Callable[[], object],
        failed: threading.Event | None = None,
        heartbeat: Heartbeat | None = None,
    ):
        """Starts nothing yet.

        Args:
          failed: set when `body` has raised; None if `Deaths` has to note that.
          heartbeat: beaten before each piece of work; None if the thread is not watched.
        """
        self.name = name
        self._heartbeat = heartbeat or Heartbeat(name)
        self.failure: BaseException | None = None  # what the body raised
        self._body = body
        # Set after `failure`. All workers of a run share it, so that one wait is for all of them.
        self._failed = failed
        self._stop = threading.Event()
        # One that hangs must not keep the process.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self, timeout: float | None) -> bool:
        """Asks the thread to end after its present piece of work; True if it has in time.

        `timeout`: None to wait as long as it takes.
        """
        self._stop.set()
        if self._thread.ident is not None:
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
            if self._failed is None:
                raise
            self.failure = error
            self._failed.set()
        finally:
            self._heartbeat.rest()


class Deaths:
    """Inside its `with`, notes the first thread of this process that dies; prints its traceback.

    For all threads but those that act and learn: also while a run waits for its first env server.
    """

    def __init__(self) -> None:
        self.first: tuple[str, BaseException] | None = None  # the thread's name, and its error
        self._before = threading.excepthook

    def __enter__(self) -> Self:
        self._before, threading.excepthook = threading.excepthook, self._note
        return self

    def __exit__(self, *_: object) -> None:
        threading.excepthook = self._before

    def raise_first(self) -> None:
        """Raises RuntimeError for the first thread that has died, if one has."""
        if self.first is not None:
            name, error = self.first
            raise RuntimeError(f"the thread {name} died: {error}") from error

    def _note(self, arguments: threading.ExceptHookArgs) -> None:
        if self.first is None and arguments.exc_value is not None:
            name = "" if arguments.thread is None else arguments.thread.name
            self.first = name, arguments.exc_value
        # Not the hook before, which may do nothing: the traceback would be lost.
        sys.excepthook(
            arguments.exc_type, arguments.exc_value or SystemExit(), arguments.exc_traceback
        )
