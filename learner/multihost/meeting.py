"""How the hosts of a run find each other: the first one listens, the others dial it.

One handshake for each of the others, in which both sides prove that they have the run's token,
without sending it, before anything that they say is believed:

| from | message |
|---|---|
| first | `{"challenge": c}` |
| other | `{"hello": [index, run], "challenge": d, "proof": HMAC(token, other, c, d, hello)}` |
| first | once all are there `{"proof": HMAC(token, first, c, d, all)}` |
| first | or `{"refused": why}` |
"""

import contextlib
import errno
import hmac
import json
import secrets
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple

from learner.multihost.peers import MessageSocket
from learner.multihost.topology import Topology
from seedrl.errors import AddressInUseError, ConfigError, HostLostError
from seedrl.timing import GRACE_SECONDS, POLL_SECONDS
from seedrl.wire.contract import printable

# Engines start processes minutes apart: images are pulled, nodes are made.
MEETING_SECONDS = 900.0
# A stranger may not ask for more memory than a hello takes. Nor can one that has connected keep all
# others waiting for longer than GRACE_SECONDS; one that does so again and again keeps hosts from
# meeting, and nothing else (docs/threat-model.md).
_LONGEST_HELLO_BYTES = 1 << 16
_CONTEXT, _ALL = "seedrl hosts 2", "all are there"
# What is wrong with a message that is no hello, or whose sender is gone.
_NO_MESSAGE = (EOFError, OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError)


class _Guest(NamedTuple):
    """Another host that has proved to be one; its index and run are as it says."""

    link: MessageSocket
    challenges: tuple[str, str]  # the first host's, and its own
    process_index: int
    run: Mapping[str, str]


def receive_all(
    topology: Topology,
    run: Mapping[str, str],
    token: str,
    *,
    poll: Callable[[], object],
    seconds: float = MEETING_SECONDS,
) -> dict[int, MessageSocket]:
    """The first host's connections to all others, by their indices, each of which it has welcomed.

    `run` is what must be the same on all hosts, by name, and `token` what each must prove to have;
    `poll` is called several times a second, and may raise. Raises AddressInUseError, ConfigError if
    another host's run differs, HostLostError if one does not come in time.
    """
    deadline = time.monotonic() + seconds
    met: dict[int, _Guest] = {}
    with _listener(topology) as listener, contextlib.ExitStack() as closing:
        closing.callback(lambda: _close(met.values()))
        listener.settimeout(POLL_SECONDS)  # so that a signal or a late host is noticed
        while missing := [index for index in range(1, topology.process_count) if index not in met]:
            poll()
            _require_time(deadline, seconds, missing)
            guest = _accept(listener, token, poll)
            if guest is None:
                continue
            index = guest.process_index
            if problem := _problem(topology, run, guest):
                # No other host would ever come in its place.
                problem = f"host {index}: {problem}"
                _refuse([guest, *met.values()], problem)
                guest.link.close()
                raise ConfigError(problem)
            if (older := met.pop(index, None)) is not None:
                # It has been started again, and its end need not be known here.
                _refuse([older], f"--process-index: another host has come as {index} since")
                older.link.close()
            met[index] = guest
        for index, guest in met.items():
            try:
                guest.link.send({"proof": _proof(token, "first", guest.challenges, _ALL)})
            except OSError as error:
                raise HostLostError(f"host {index} of {topology.process_count} is gone") from error
        closing.pop_all()
    return {index: met[index].link for index in sorted(met)}


def dial(
    topology: Topology,
    run: Mapping[str, str],
    token: str,
    *,
    poll: Callable[[], object],
    seconds: float = MEETING_SECONDS,
) -> MessageSocket:
    """The connection to the first host, once all are there. Args: see `receive_all`.

    Raises ConfigError if either refuses the other, HostLostError if the first is not there in time.
    """
    deadline = time.monotonic() + seconds
    while True:
        poll()
        _require_time(deadline, seconds, [0])
        try:
            with contextlib.ExitStack() as closing:
                connection = socket.create_connection(topology.address, timeout=GRACE_SECONDS)
                link = closing.enter_context(contextlib.closing(MessageSocket(connection)))
                link.limit(POLL_SECONDS, _LONGEST_HELLO_BYTES)  # until it has proved to be a host
                # Where nobody listens the kernel may have given it the very port that it dials,
                # and that would keep the first host from this port.
                if connection.getsockname() != connection.getpeername():
                    _show_proof(link, topology, run, token, poll, deadline)
                    closing.pop_all()
                    return link
        except ConfigError:  # a ValueError, too
            raise
        except _NO_MESSAGE:
            pass  # it is not there yet, goes while it is asked, or another program has the port
        time.sleep(POLL_SECONDS)


def _problem(topology: Topology, run: Mapping[str, str], guest: _Guest) -> str:
    # Why another host cannot take part in this one's run; empty if it can.
    if name := next((name for name in run if guest.run.get(name) != run[name]), ""):
        return (
            f"{name}: expected the same on all hosts, got {guest.run.get(name)} where host 0 has "
            f"{run[name]}. hint: start all with one command line but for --process-index and --bind"
        )
    if not 0 < guest.process_index < topology.process_count:
        return (
            f"--process-index: expected 1 to {topology.process_count - 1} beside host 0, got "
            f"{guest.process_index}"
        )
    return ""


def _accept(listener: socket.socket, token: str, poll: Callable[[], object]) -> _Guest | None:
    """Another host, if one has connected; None if nobody has, or a stranger, who is sent away."""
    with contextlib.suppress(*_NO_MESSAGE), contextlib.ExitStack() as closing:
        connection, _ = listener.accept()
        link = closing.enter_context(contextlib.closing(MessageSocket(connection)))
        link.limit(POLL_SECONDS, _LONGEST_HELLO_BYTES)
        asked = secrets.token_hex(32)  # a new one each time, so that no proof is of use twice
        link.send({"challenge": asked})
        message = _next(link, poll, time.monotonic() + GRACE_SECONDS)
        index, run = message["hello"]
        # Of what is nested a proof might not be computed, whoever has sent it.
        if not all(isinstance(text, str) for text in run.values()):
            raise ValueError("expected texts")
        guest = _Guest(link, (asked, str(message["challenge"])), int(index), run)
        expected = _proof(token, "other", guest.challenges, [guest.process_index, run])
        if _is_same(message.get("proof"), expected):
            closing.pop_all()
            return guest
        _refuse([guest], "--token-file: expected the token of host 0, got another one or none")
    return None


def _show_proof(
    link: MessageSocket,
    topology: Topology,
    run: Mapping[str, str],
    token: str,
    poll: Callable[[], object],
    deadline: float,
) -> None:
    # Waits until all are there. Raises ConfigError, and one of `_NO_MESSAGE`.
    challenges = (str(_next(link, poll, deadline)["challenge"]), secrets.token_hex(32))
    said = [topology.process_index, dict(run)]
    proof = _proof(token, "other", challenges, said)
    link.send({"hello": said, "challenge": challenges[1], "proof": proof})
    answer = _next(link, poll, deadline)
    if "refused" in answer:
        raise ConfigError(printable(str(answer["refused"]), 2000))
    if not _is_same(answer["proof"], _proof(token, "first", challenges, _ALL)):
        raise ConfigError(
            f"--coordinator: what answers at {topology.coordinator} does not have this host's "
            "token; start all hosts with one --token-file"
        )


def _next(link: MessageSocket, poll: Callable[[], object], deadline: float) -> dict[str, Any]:
    while time.monotonic() < deadline:
        poll()
        with contextlib.suppress(TimeoutError):
            for message in link.receive():
                return dict(message)
    raise TimeoutError


def _proof(
    token: str, side: Literal["first", "other"], challenges: tuple[str, str], said: object
) -> str:
    """HMAC-SHA256 over what one side says, and what both have asked: of no use a second time."""
    # It names the side, so that neither side's proof is one of the other.
    # As text in one order, because both sides must sign the same bytes.
    text = json.dumps([_CONTEXT, side, *challenges, said], sort_keys=True)
    return hmac.new(token.encode(), text.encode(), "sha256").hexdigest()


def _is_same(proof: object, expected: str) -> bool:
    # A text of JSON may have half of a surrogate pair. Takes as long for any that is not the same.
    given = proof.encode("utf-8", "surrogatepass") if isinstance(proof, str) else b""
    return hmac.compare_digest(given, expected.encode())


def _refuse(guests: Iterable[_Guest], problem: str) -> None:
    for guest in guests:
        with contextlib.suppress(OSError):  # it is gone
            guest.link.send({"refused": problem})


def _close(guests: Iterable[_Guest]) -> None:
    for guest in guests:
        guest.link.close()


def _require_time(deadline: float, seconds: float, missing: list[int]) -> None:
    if time.monotonic() >= deadline:
        raise HostLostError(
            f"expected all hosts within {seconds:.0f} s; missing: {', '.join(map(str, missing))}"
        )


def _listener(topology: Topology) -> socket.socket:
    host, port = topology.address
    try:
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            return socket.create_server((host, port), family=family)
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                raise
        # A name by which others know this machine need not be an address of its own.
        if socket.has_dualstack_ipv6():
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
        return socket.create_server(("", port))
    except OSError as error:
        raise AddressInUseError(
            f"--coordinator: cannot serve on {topology.coordinator} ({error.strerror}); choose "
            "another port"
        ) from error
