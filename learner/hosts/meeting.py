"""How the hosts of a run find each other: the first one waits for all others, which dial it."""

import contextlib
import dataclasses
import errno
import selectors
import socket
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from learner.hosts.hello import Hello
from learner.hosts.messages import LONGEST_BYTES, LONGEST_HELLO_BYTES, MessageSocket
from learner.hosts.place import Place
from learner.hosts.proof import Token, challenge
from learner.hosts.waiting import TICK_SECONDS, Clock, Waiting, named
from seedrl.errors import AddressInUseError, ConfigError, HostLostError
from seedrl.wire.printable import printable

# Connections that have not said hello: beyond that, and one for each host, or after that time, the
# oldest is closed.
_MOST_STRANGERS = 64
_HELLO_SECONDS = 10.0
# Refusals that the user hears of, one of a kind for each address: any stranger could fill the log.
_MOST_REPORTED = 16


def receive_all(
    place: Place,
    hello: Hello,
    waiting: Waiting,
    token: Token,
    welcome: Callable[[], dict[str, Any]] = dict,
) -> dict[int, MessageSocket]:
    """The first host's connections to all others, by their indices, each of which it has welcomed.

    Args:
      place, hello: this host's.
      waiting: how it waits.
      token: which each must prove to have.
      welcome: what it says to all, once they are there.

    Raises AddressInUseError, ConfigError if another host's run differs, HostLostError if one does
    not come in time, StoppedError.
    """
    clock = Clock(waiting)
    with _Reception(place, hello, token, waiting.report) as reception:
        while missing := reception.missing():
            clock.tick(f"waits for {named(missing)}", missing)
            reception.step(TICK_SECONDS)
        return reception.welcomed(welcome())


@dataclasses.dataclass(eq=False)
class _Guest:
    """Who has connected: a stranger, or a host once its index is known.

    Attributes:
      link: the connection.
      name: where it is from.
      deadline: to say hello, of a monotonic clock.
      challenges: this host's, and its own once it has said hello.
      index: of the host.
    """

    link: MessageSocket
    name: str
    deadline: float
    challenges: tuple[str, str]
    index: int | None = None


class _Reception:
    """The first host while others come. Owns the listener, and guests until they are welcomed."""

    def __init__(self, place: Place, hello: Hello, token: Token, report: Callable[[str], None]):
        self._place, self._hello, self._token, self._report = place, hello, token, report
        self._reported: set[tuple[str, str]] = set()  # refusals: of which address, of what kind
        self._listener = _listener(place)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        self._guests: list[_Guest] = []  # the oldest first
        self._met: dict[int, _Guest] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.close()
        for guest in self._guests:
            guest.link.close()
        self._selector.close()

    def missing(self) -> list[int]:
        """The hosts that have not come, or are gone again."""
        return [index for index in range(1, self._place.num_hosts) if index not in self._met]

    def step(self, seconds: float) -> None:
        """Handles what is said within that time. Raises ConfigError; see `_admit`."""
        for key, _ in self._selector.select(seconds):
            if key.data is None:
                self._accept()
            elif key.data in self._guests and not self._hear(key.data):
                self._drop(key.data)
        now = time.monotonic()
        for guest in [each for each in self._strangers() if each.deadline < now]:
            self._drop(guest)

    def welcomed(self, welcome: dict[str, Any]) -> dict[int, MessageSocket]:
        """Says `welcome` to all; their connections. Raises HostLostError if one is gone."""
        for index, guest in self._met.items():
            proof = self._token.proof("first", guest.challenges, welcome)
            try:
                guest.link.send({"welcome": welcome, "proof": proof})
            except OSError as error:
                raise HostLostError(
                    f"host {index} of {self._place.num_hosts} is gone ({error})"
                ) from error
            guest.link.longest_bytes = LONGEST_BYTES
        self._guests = self._strangers()
        return {index: self._met[index].link for index in sorted(self._met)}

    def _strangers(self) -> list[_Guest]:
        return [guest for guest in self._guests if guest.index is None]

    def _accept(self) -> None:
        try:
            connection, address = self._listener.accept()
        except OSError:  # it has gone again
            return
        strangers = self._strangers()
        if len(strangers) >= _MOST_STRANGERS + self._place.num_hosts:
            self._drop(strangers[0])
        deadline = time.monotonic() + _HELLO_SECONDS
        link = MessageSocket(connection, LONGEST_HELLO_BYTES)
        guest = _Guest(link, str(address[0]), deadline, (challenge(), ""))
        self._guests.append(guest)
        self._selector.register(link, selectors.EVENT_READ, guest)
        with contextlib.suppress(OSError):  # it is gone; that will be heard
            link.send({"challenge": guest.challenges[0]})

    def _hear(self, guest: _Guest) -> bool:
        """Whether the guest may stay: a host that has said hello says nothing more until then."""
        try:
            messages = list(guest.link.receive())
        except (EOFError, OSError):
            return False
        except ValueError as error:
            self._report_refusal(guest, "no message", f"it sends no message of a host: {error}")
            return False
        return all(guest.index is None and self._admit(guest, message) for message in messages)

    def _admit(self, guest: _Guest, message: dict[str, Any]) -> bool:
        """Whether this is a host's hello.

        Raises ConfigError for a host that cannot take part: nobody would ever come in its place.
        """
        try:
            said, theirs = message["hello"], Hello.from_json(message["hello"])
            guest.challenges = (guest.challenges[0], str(message["challenge"]))
        except (TypeError, ValueError, KeyError, OverflowError):
            self._report_refusal(guest, "no hello", "expected a host's hello, got another message")
            return False
        if not self._token.accepts(message.get("proof"), "other", guest.challenges, said):
            self._refuse_stranger(guest)
            return False
        index = theirs.host_index
        if problem := self._hello.problem_of(theirs):
            _refuse(guest, problem)
            for each in self._met.values():
                _refuse(each, f"host {index}: {problem}")
            raise ConfigError(f"host {index}: {problem}")
        if (other := self._met.get(index)) is not None:
            # It may have been started again, and its end not be known here. Who has connected first
            # is the older one, even if its hello is heard last.
            older = min(guest, other, key=self._guests.index)
            _refuse(older, f"--host-index: another host has come as {index} since")
            if older is guest:
                return False
            del self._met[index]
            self._drop(older)
        guest.index, self._met[index] = index, guest
        return True

    def _refuse_stranger(self, guest: _Guest) -> None:
        _refuse(
            guest,
            "--token-file: expected the token of host 0, got another one or none; start all hosts "
            "with the same file",
        )
        self._report_refusal(guest, "token", "it does not have this run's token")

    def _report_refusal(self, guest: _Guest, kind: str, why: str) -> None:
        if (guest.name, kind) not in self._reported and len(self._reported) < _MOST_REPORTED:
            self._reported.add((guest.name, kind))
            self._report(f"refuses a host at {guest.name}: {printable(why)}")

    def _drop(self, guest: _Guest) -> None:
        self._selector.unregister(guest.link)
        guest.link.close()
        self._guests.remove(guest)
        if guest.index is not None and self._met.get(guest.index) is guest:
            del self._met[guest.index]
            self._report(f"waits for host {guest.index} again: it was there, and is gone")


def _refuse(guest: _Guest, problem: str) -> None:
    with contextlib.suppress(OSError):  # it is gone
        guest.link.send({"refused": problem})


def _listener(place: Place) -> socket.socket:
    host, port = place.address
    try:
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            return socket.create_server((host, port), family=family, backlog=_MOST_STRANGERS)
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                raise
        # A name by which others know this machine need not be an address of its own.
        if socket.has_dualstack_ipv6():
            return socket.create_server(
                ("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=_MOST_STRANGERS
            )
        return socket.create_server(("", port), backlog=_MOST_STRANGERS)
    except OSError as error:
        raise AddressInUseError(
            f"--coordinator: cannot serve on {place.coordinator} ({error.strerror}); choose "
            "another port"
        ) from error
