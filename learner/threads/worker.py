"""A thread that repeats one piece of work, and whose death nobody can overlook."""

import threading
import time
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
        clock: Callable[[], float] = time.monotonic,
    ):
        self.name = name
        self._clock = clock
        self._begun: float | None = None  # when the present piece of work began
        self.failure: BaseException | None = None
        self._body = body
        self._failed = failed
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    @property
    def seconds_at_work(self) -> float:
        """How long the present piece of work has taken so far; 0 if there is none."""
        begun = self._begun
        return 0.0 if begun is None else self._clock() - begun

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
                self._begun = self._clock()
                self._body()
        except ClosedError:
            pass  # A neighbour was closed first: the run is ending.
        except BaseException as error:
            self.failure = error
            self._failed.set()
        finally:
            self._begun = None
