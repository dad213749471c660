"""A thread that repeats one piece of work, and whose death nobody can overlook."""

import threading
from collections.abc import Callable

from learner.threads.awake_clock import wait_awake


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
    ):
        self.name = name
        # The number of the present piece of work, 0 if there is none. Its thread alone changes it.
        self._piece = 0
        self._seen_piece, self._seen_since = 0, 0.0
        self.failure: BaseException | None = None
        self._body = body
        self._failed = failed
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def seconds_at_work(self, now: float) -> float:
        """How long the present piece of work has been seen to take; 0 if there is none.

        Whoever supervises asks, again and again, by a clock of its own, and so the work itself
        needs none: a piece counts from when this first finds it.
        """
        piece = self._piece  # read once: the thread may go on to the next one meanwhile
        if piece != self._seen_piece:
            self._seen_piece, self._seen_since = piece, now
        return now - self._seen_since if piece else 0.0

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
                self._piece += 1
                self._body()
        except ClosedError:
            pass  # A neighbour was closed first: the run is ending.
        except BaseException as error:
            self.failure = error
            self._failed.set()
        finally:
            self._piece = 0
