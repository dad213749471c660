"""Keeps an env server going that hangs or grows: it begins again in the same process."""

import logging
import os
import time
from collections.abc import Callable
from typing import NoReturn, Protocol

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
    """

    def __init__(
        self,
        quarantine: Quarantine,
        *,
        start_again: Callable[[str], NoReturn] = _never,
        allow_computing: Callable[[float], None] = lambda seconds: None,
        max_memory_mib: int = 0,
    ) -> None:
        """Watches nothing yet.

        Args:
          quarantine: see there.
          start_again, allow_computing: see `envs_server.faults.self_restart`.
          max_memory_mib: of this process, before it begins again; 0 for no limit but three quarters
            of this machine's memory while environments are built.
        """
        self.quarantine = quarantine
        self.watch: Watch[Stepped | None] = Watch()
        self._start_again = start_again
        self._allow_computing = allow_computing
        self._max_memory_mib = max_memory_mib
        self._lease: Lease | None = None
        self._connection: Cancelled | None = None
        self._since = 0.0
        self._grown_mib = 0

    def watch_over(self, stop: Stop) -> Watchdog[Stepped | None]:
        """The watchdog, until it is closed."""
        return Watchdog(
            self.watch,
            on_overdue=self._end_what_hangs,
            on_grown=self._end_what_grows,
            is_stopping=lambda: stop.is_requested,
            allow_computing=self._allow_computing,
            max_memory_mib=self._max_memory_mib or _most_for_building_mib(),
        )

    def keeps(self, lease: Lease, connection: Cancelled) -> None:
        """These are served now."""
        self._lease, self._connection, self._since = lease, connection, time.monotonic()

    def begin_again_if_grown(self) -> None:
        """Replaces the process if it has grown too large; nothing is served now."""
        if self._grown_mib:
            _log.error(
                "the process has grown to %d MiB, beyond --max-memory-mib %d, and begins again",
                self._grown_mib,
                self._max_memory_mib,
            )
            self._start_again(self.quarantine.remember())

    def _end_what_hangs(self, begun: Begun[Stepped | None]) -> None:
        work, seconds = begun.work, begun.limit_seconds
        error = EnvironmentFailedError(f"building the environments takes more than {seconds:g} s")
        if isinstance(work, EnvGroup):
            error = work.overdue(begun.frames(), seconds)
        line = self.quarantine.failed(error.position, str(error), is_hang=True)
        if self._lease is not None and self._lease.report_failure(error):
            time.sleep(_SEND_SECONDS)
        if not self.quarantine.live:
            _log.error("%s%s", FAREWELL, line)
            os._exit(ExitCode.FAILING_ENVIRONMENT)
        _log.error("%s; the env server begins again", line)
        self._start_again(self.quarantine.remember())

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
        if self.quarantine.has_worked:  # maybe what was built before has leaked
            _log.error("%s; the env server begins again", line)
            self._start_again(self.quarantine.remember())
        _log.error("%s%s", FAREWELL, line)
        os._exit(ExitCode.USAGE)


def _most_for_building_mib() -> int:
    mib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**20
    return int(mib * _SHARE_FOR_BUILDING)
