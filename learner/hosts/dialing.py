"""How a host finds the first one of its run, and what that says to all."""

import selectors
import socket
import time
from typing import Any

from learner.hosts.hello import Hello
from learner.hosts.messages import LONGEST_BYTES, LONGEST_HELLO_BYTES, MessageSocket
from learner.hosts.place import Place
from learner.hosts.proof import Token, challenge
from learner.hosts.waiting import TICK_SECONDS, Clock, StoppedError, Waiting
from seedrl.errors import ConfigError, HostLostError
from seedrl.wire.printable import printable

_CONNECT_SECONDS = 5.0
_LONGEST_REFUSAL = 2000


def dial(
    place: Place, hello: Hello, waiting: Waiting, token: Token
) -> tuple[MessageSocket, dict[str, Any]]:
    """The connection to the first host, and what that has said to all.

    Args:
      place, hello: this host's.
      waiting: how it waits.
      token: which this host proves to have, and the first one, too.

    Raises ConfigError if either refuses the other, HostLostError if the first is not there in time,
    StoppedError.
    """
    clock, answered = Clock(waiting), ""
    while True:
        clock.tick(f"waits for host 0 at {place.coordinator}{answered}", [0])
        try:
            connection = socket.create_connection(place.address, timeout=_CONNECT_SECONDS)
        except OSError:
            time.sleep(TICK_SECONDS)
            continue
        messages = MessageSocket(connection, LONGEST_HELLO_BYTES)
        if _has_reached_itself(connection):
            messages.close()
            continue
        try:
            welcome = _welcome(messages, hello, clock, token, place.coordinator)
        except (ConfigError, HostLostError, StoppedError):
            messages.close()
            raise
        except (EOFError, OSError, ValueError) as error:
            messages.close()  # the first host was not ready, or begins again
            if isinstance(error, ValueError):
                answered = f"; what answers there is no host: {printable(str(error))}"
            time.sleep(TICK_SECONDS)
        else:
            messages.longest_bytes = LONGEST_BYTES
            return messages, welcome


def _has_reached_itself(connection: socket.socket) -> bool:
    """Nobody listens, and the kernel has given it the very port that it dials.

    That keeps the first host from this port.
    """
    try:
        return bool(connection.getsockname() == connection.getpeername())
    except OSError:  # it is closed already, which reading will show
        return False


def _welcome(
    messages: MessageSocket, hello: Hello, clock: Clock, token: Token, coordinator: str
) -> dict[str, Any]:
    """What the first host says to all. Raises ConfigError, and as `MessageSocket` does."""
    asked = _next(messages, clock)
    if not isinstance(theirs := asked.get("challenge"), str):
        raise ValueError("expected a challenge")
    challenges, said = (theirs, challenge()), hello._asdict()
    proof = token.proof("other", challenges, said)
    messages.send({"hello": said, "challenge": challenges[1], "proof": proof})
    answer = _next(messages, clock)
    if "refused" in answer:
        raise ConfigError(printable(str(answer["refused"]), _LONGEST_REFUSAL))
    welcome = answer.get("welcome")
    if not token.accepts(answer.get("proof"), "first", challenges, welcome):
        raise ConfigError(
            f"--coordinator: who answers at {coordinator} does not have this host's token; start "
            "all hosts with one --token-file"
        )
    if not isinstance(welcome, dict):
        raise ValueError("expected a welcome")
    return welcome


def _next(messages: MessageSocket, clock: Clock) -> dict[str, Any]:
    """The next message; the first host sends none before it is answered."""
    with selectors.DefaultSelector() as selector:
        selector.register(messages, selectors.EVENT_READ)
        while True:
            clock.tick("waits for the other hosts", [0])
            if selector.select(TICK_SECONDS):
                for message in messages.receive():
                    return dict(message)
