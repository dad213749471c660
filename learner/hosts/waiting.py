"""How a host waits for others: for how long, who ends that, and who hears of it."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from seedrl.errors import HostLostError, UserError
from seedrl.exit_codes import ExitCode

# Engines start processes minutes apart: images are pulled, nodes are made.
MEETING_SECONDS = 900.0
TICK_SECONDS = 0.2
_REPORT_SECONDS = 10.0


class Waiting(NamedTuple):
    """How a host waits for others.

    Attributes:
      is_stopped: whether it shall not any more, as SIGTERM says.
      report: takes a line for the user.
      seconds: how long it waits at most.
      what: what the others have not done then.
    """

    is_stopped: Callable[[], bool]
    report: Callable[[str], None]
    seconds: float = MEETING_SECONDS
    what: str = "come"


class StoppedError(UserError):
    """The wait for other hosts was ended by a signal, or because one of them has ended.

    Not with 0: who has started this host would take its part of the run for done.
    """

    exit_code = ExitCode.KILLED


class Clock:
    """Ends a wait in time, and reports now and then for whom it is."""

    def __init__(self, waiting: Waiting):
        """Begins now."""
        self._waiting = waiting
        now = time.monotonic()
        self._deadline, self._next_line = now + waiting.seconds, now + _REPORT_SECONDS

    def tick(self, text: str, missing: Sequence[int]) -> None:
        """Several times a second. Raises StoppedError, HostLostError that names those missing."""
        now = time.monotonic()
        if self._waiting.is_stopped():
            raise StoppedError
        if now >= self._deadline:
            raise HostLostError(
                f"expected all hosts within {self._waiting.seconds:.0f} s, but "
                f"{named(missing)} did not {self._waiting.what}"
            )
        if now >= self._next_line:
            self._next_line = now + 6 * _REPORT_SECONDS
            self._waiting.report(text)


@contextlib.contextmanager
def reported(text: str, report: Callable[[str], object]) -> Iterator[None]:
    """Reports `text` once if what is inside, which nothing can end, takes long."""
    timer = threading.Timer(_REPORT_SECONDS, report, [text])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def named(hosts: Sequence[int]) -> str:
    """For a sentence."""
    return f"host{'s' * (len(hosts) > 1)} {', '.join(map(str, hosts))}"
