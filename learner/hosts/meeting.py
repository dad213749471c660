"""How the hosts of a run find each other: the first one waits for all others, which dial it."""

import contextlib
import errno
import selectors
import socket
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from learner.hosts.messages import LONGEST_BYTES, LONGEST_HELLO_BYTES, MessageSocket
from learner.hosts.place import Place
from seedrl.errors import AddressInUseError, ConfigError, HostLostError

# Engines start processes minutes apart: images are pulled, nodes are made.
MEETING_SECONDS = 900.0
_SAY_SECONDS = 10.0
_TICK_SECONDS = 0.2


class Hello(NamedTuple):
    """What a host says of itself.

    Attributes:
      host_index, num_hosts: see `Place`.
      run: what must be the same on all hosts, by name, each as a short text.
    """

    host_index: int
    num_hosts: int
    run: dict[str, str]


class Waiting(NamedTuple):
    """How a host waits for others.

    Attributes:
      is_stopped: whether it shall not any more, as SIGTERM says.
      report: takes a line for the user.
      seconds: how long it waits at most.
    """

    is_stopped: Callable[[], bool]
    report: Callable[[str], None]
    seconds: float = MEETING_SECONDS


class StoppedError(Exception):
    """The wait for other hosts was ended by a signal."""


def receive_all(place: Place, hello: Hello, waiting: Waiting) -> list[tuple[int, MessageSocket]]:
    """The first host's connections to all others, which it has told to begin.

    Raises AddressInUseError, ConfigError if another host's run differs, HostLostError if one does
    not come in time, StoppedError.
    """
    met: dict[int, MessageSocket] = {}
    with contextlib.ExitStack() as stack, selectors.DefaultSelector() as selector:
        listener = stack.enter_context(_listener(place))
        selector.register(listener, selectors.EVENT_READ, None)
        clock = _Clock(waiting)
        while len(met) < place.num_hosts - 1:
            missing = sorted(set(range(1, place.num_hosts)) - met.keys())
            clock.tick(f"waits for host{'s' * (len(missing) > 1)} {_listed(missing)}", missing)
            for key, _ in selector.select(_TICK_SECONDS):
                if key.data is None:
                    connection, _ = listener.accept()
                    guest = MessageSocket(connection, LONGEST_HELLO_BYTES)
                    selector.register(guest, selectors.EVENT_READ, guest)
                elif (index := _admit(key.data, hello, met)) is not None:
                    selector.unregister(key.data)
                    met[index] = key.data
                elif key.data.fileno() < 0:
                    selector.unregister(key.fd)
        guests = [key.data for key in selector.get_map().values() if key.data is not None]
    for stranger in guests:
        stranger.close()
    for guest in met.values():
        guest.longest_bytes = LONGEST_BYTES
    return sorted(met.items())


def dial(place: Place, hello: Hello, waiting: Waiting) -> tuple[MessageSocket, dict[str, Any]]:
    """The connection to the first host, and what that has said to all.

    Raises ConfigError if it refuses this one, HostLostError if it is not there in time,
    StoppedError.
    """
    clock = _Clock(waiting)
    while True:
        clock.tick(f"waits for host 0 at {place.coordinator}", [0])
        try:
            connection = socket.create_connection(_address(place), timeout=5.0)
        except OSError:
            time.sleep(_TICK_SECONDS)
            continue
        messages = MessageSocket(connection)
        try:
            messages.send({"hello": hello._asdict()})
            return messages, _welcome(messages, clock)
        except (ConfigError, HostLostError, StoppedError):
            messages.close()
            raise
        except (EOFError, OSError, ValueError):
            messages.close()  # the first host was not ready, or begins again
            time.sleep(_TICK_SECONDS)


class _Clock:
    """Ends a wait in time, and says now and then for whom it is."""

    def __init__(self, waiting: Waiting):
        self._waiting = waiting
        now = time.monotonic()
        self._deadline, self._next_line = now + waiting.seconds, now + _SAY_SECONDS

    def tick(self, text: str, missing: list[int]) -> None:
        now = time.monotonic()
        if self._waiting.is_stopped():
            raise StoppedError
        if now >= self._deadline:
            raise HostLostError(
                f"expected all hosts within {self._waiting.seconds:.0f} s, but "
                f"host{'s' * (len(missing) > 1)} {_listed(missing)} did not come"
            )
        if now >= self._next_line:
            self._next_line = now + 6 * _SAY_SECONDS
            self._waiting.report(text)


def _listener(place: Place) -> socket.socket:
    host, port = _address(place)
    try:
        try:
            return socket.create_server((host, port), backlog=place.num_hosts)
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                raise
            # A name by which others know this machine need not be an address of its own.
            return socket.create_server(("", port), backlog=place.num_hosts)
    except OSError as error:
        raise AddressInUseError(
            f"--coordinator: cannot serve on {place.coordinator} ({error.strerror}); choose "
            "another port"
        ) from error


def _address(place: Place) -> tuple[str, int]:
    host, _, port = place.coordinator.rpartition(":")
    return host.strip("[]"), int(port)


def _admit(guest: MessageSocket, hello: Hello, met: dict[int, MessageSocket]) -> int | None:
    """The index of a host that is welcome; None if its hello is not whole, or not one.

    Raises ConfigError for a host of this run that cannot take part: nobody would ever come in its
    place.
    """
    try:
        messages = list(guest.receive())
        if not messages:
            return None
        theirs = Hello(**messages[0]["hello"])
        index, count, run = int(theirs.host_index), int(theirs.num_hosts), dict(theirs.run)
    except (EOFError, OSError, ValueError, TypeError, KeyError, AttributeError):
        guest.close()  # its peer is not a host of this run
        return None
    problem = _difference(hello, count, run)
    if not problem and (index in met or not 0 < index < hello.num_hosts):
        problem = f"--host-index: expected one that no other host has, got {index} twice"
    if problem:
        with contextlib.suppress(OSError):
            guest.send({"refused": problem})
        guest.close()
        raise ConfigError(f"host {index}: {problem}")
    return index


def _difference(hello: Hello, count: int, run: dict[str, str]) -> str:
    if count != hello.num_hosts:
        return f"--hosts: expected {hello.num_hosts}, as host 0 has, got {count}"
    for name, value in hello.run.items():
        if run.get(name) != value:
            return (
                f"{name}: expected the same on all hosts, got {run.get(name)} where host 0 has "
                f"{value}; start all with one command line but for --host-index and --bind"
            )
    return ""


def _welcome(messages: MessageSocket, clock: _Clock) -> dict[str, Any]:
    with selectors.DefaultSelector() as selector:
        selector.register(messages, selectors.EVENT_READ)
        while True:
            clock.tick("waits for the other hosts", [0])
            if not selector.select(_TICK_SECONDS):
                continue
            for message in messages.receive():
                if "refused" in message:
                    raise ConfigError(str(message["refused"]))
                if "welcome" in message:
                    return dict(message["welcome"])


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))
