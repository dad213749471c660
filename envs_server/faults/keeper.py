"""Keeps an env server going that hangs or grows: it begins again in the same process."""

import logging
import os
import time
from collections.abc import Callable
from typing import NamedTuple, NoReturn, Protocol

from envs_server.building import Stepped
from envs_server.connection import Lease
from envs_server.errors import EnvironmentFailedError
from envs_server.faults.quarantine import Quarantine
from envs_server.faults.watchdog import Begun, Watch, Watchdog
from envs_server.group import EnvGroup
from envs_server.stop import Stop
from seedrl.exit_codes import ExitCode
from seedrl.programs.farewell import FAREWELL

_log = logging.getLogger("envs_server")

# For a last message to get on its way.
_SEND_SECONDS = 0.3
# One that begins again more often would do nothing else.
_SERVED_SECONDS = 60.0
# Of this machine's memory, for building environments: their arguments come from a learner.
_SHARE_FOR_BUILDING = 0.75


class End(NamedTuple):
    """There is no point in serving any longer; and why, in a line that is logged.

    It is the last line unless training is over: that is said before environments are closed, for
    one that ends its process then changes nothing.
    """

    code: ExitCode
    reason: str

    def say(self) -> None:
        """Logs why."""
        level = logging.ERROR if self.code else logging.INFO
        _log.log(level, "%s%s", FAREWELL, self.reason)


class Cancelled(Protocol):
    """A connection, as far as this needs it."""

    def cancel(self) -> None:
        """Breaks it; any thread may."""
        ...


def _never(remembered: str) -> NoReturn:
    raise AssertionError("nothing hangs without a watchdog")


class Keeper:
    """What an env server does about itself; the watchdog's thread calls it while another hangs.

    Attributes:
      quarantine: which environments it does without.
      watch: what it is at.
      note: see `__init__`.
    """

    def __init__(
        self,
        quarantine: Quarantine,
        *,
        start_again: Callable[[str], NoReturn] = _never,
        allow_computing: Callable[[float], None] = lambda seconds: None,
        max_memory_mib: int = 0,
        note: Callable[[int, bool], None] | None = None,
        farewell: Callable[[], None] = lambda: None,
        films: bool = False,
    ) -> None:
        """Watches nothing yet.

        Args:
          quarantine: see there.
          start_again, allow_computing: see `envs_server.faults.self_restart`.
          max_memory_mib: of this process, before it begins again; 0 for no limit but three quarters
            of this machine's memory while environments are built.
          note: takes the position of each environment that is at work, and of each that no longer
            is; None if that is not asked for.
          farewell: says that training is over, to whoever would start the process again.
          films: whether episodes are filmed: another process would number its films like the first.
        """
        self.quarantine = quarantine
        self.note = note
        self.watch: Watch[Stepped | None] = Watch(allow_computing=allow_computing)
        self._start_again, self._farewell = start_again, farewell
        self._max_memory_mib, self._films = max_memory_mib, films
        self._lease: Lease | None = None
        self._has_served = False
        self._connection: Cancelled | None = None
        self._since = 0.0
        self._grown_mib = 0
        self._end: End | None = None
        self._is_stopping: Callable[[], bool] = lambda: False

    def watch_over(self, stop: Stop) -> Watchdog[Stepped | None]:
        """The watchdog, until it is closed."""
        self._is_stopping = lambda: stop.is_requested
        return Watchdog(
            self.watch,
            on_overdue=self._end_what_hangs,
            on_grown=self._end_what_grows,
            is_stopping=self._is_stopping,
            max_memory_mib=self._max_memory_mib or _most_for_building_mib(),
        )

    def keeps(self, lease: Lease, connection: Cancelled) -> None:
        """These are served now."""
        self._has_served |= self._lease is not None and self._lease.is_serving
        self._lease, self._connection, self._since = lease, connection, time.monotonic()

    def is_to_end(self, end: End) -> None:
        """Once the environments are closed; one that hangs at that does not change it."""
        self._end = end
        if end.code == ExitCode.OK:
            self._farewell()
            end.say()

    def begin_again_if_grown(self) -> None:
        """Replaces the process if it has grown too large; nothing is served now.

        Not one that is asked to stop: the next one would not know of it.
        """
        if self._grown_mib and not self._is_stopping():
            limit = f"beyond --max-memory-mib {self._max_memory_mib}"
            self._begin_again(f"the process has grown to {self._grown_mib} MiB, {limit}")

    def _end_what_hangs(self, begun: Begun[Stepped | None]) -> None:
        work, seconds = begun.work, begun.limit_seconds
        what = "building the environments" if work is None else "playing a recording"
        error = EnvironmentFailedError(f"{what} takes more than {seconds:g} s")
        if isinstance(work, EnvGroup):
            error = work.overdue(begun.frames(), seconds)
        line = self.quarantine.failed(error.position, str(error), ends_process=True)
        if self._lease is not None and self._lease.report_failure(error):
            time.sleep(_SEND_SECONDS)
        self._end_if_it_is_to(line)
        if not self.quarantine.live:
            _leave(End(ExitCode.FAILING_ENVIRONMENT, line))
        self._begin_again(line)

    def _begin_again(self, line: str) -> NoReturn:
        if self._films:
            _leave(End(ExitCode.FAILED_FILMS, line))
        _log.error("%s; the env server begins again", line)
        self._start_again(self.quarantine.remember())

    def _end_if_it_is_to(self, line: str) -> None:
        """Says `line` and ends if that was to come next anyway.

        A process that begins again knows of no request to stop, nor that its learner is done.
        """
        if self._end is None and not self._is_stopping():
            return
        _log.error("%s", line)
        if self._end is not None:
            _leave(self._end)
        _log.info("stopped")
        os._exit(ExitCode.OK)

    def _end_what_grows(self, mib: int) -> bool:
        if self.watch.current and self._lease and not self._lease.is_serving:
            self._end_what_is_too_large(mib)
        if not self._max_memory_mib:
            return False
        if time.monotonic() - self._since < _SERVED_SECONDS or self._connection is None:
            return False
        self._grown_mib = mib
        self._connection.cancel()
        return True

    def _end_what_is_too_large(self, mib: int) -> None:
        line = f"building the environments takes more than {mib} MiB (--max-memory-mib)"
        self._end_if_it_is_to(line)
        if self._has_served:  # maybe what was built before has leaked
            self._begin_again(line)
        _leave(End(ExitCode.USAGE, line))


def _leave(end: End) -> NoReturn:
    end.say()
    os._exit(end.code)


def _most_for_building_mib() -> int:
    mib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**20
    return int(mib * _SHARE_FOR_BUILDING)
