"""How a host finds the first one of its run, and what that says to all."""

import selectors
import socket
import time
from typing import Any

from learner.hosts.hello import Hello
from learner.hosts.messages import LONGEST_BYTES, LONGEST_HELLO_BYTES, MessageSocket
from learner.hosts.place import Place
from learner.hosts.waiting import TICK_SECONDS, Clock, StoppedError, Waiting
from seedrl.errors import ConfigError, HostLostError
from seedrl.wire.printable import printable

_CONNECT_SECONDS = 5.0
_LONGEST_REFUSAL = 2000


def dial(place: Place, hello: Hello, waiting: Waiting) -> tuple[MessageSocket, dict[str, Any]]:
    """The connection to the first host, and what that has said to all.

    Raises ConfigError if it refuses this one, HostLostError if it is not there in time,
    StoppedError.
    """
    clock = Clock(waiting)
    while True:
        clock.tick(f"waits for host 0 at {place.coordinator}", [0])
        try:
            connection = socket.create_connection(place.address, timeout=_CONNECT_SECONDS)
        except OSError:
            time.sleep(TICK_SECONDS)
            continue
        messages = MessageSocket(connection, LONGEST_HELLO_BYTES)
        if connection.getsockname() == connection.getpeername():
            # Nobody listens, and the kernel has given it the very port that it dials: so it reaches
            # itself, and keeps the first host from that port.
            messages.close()
            continue
        try:
            messages.send({"hello": hello._asdict()})
            welcome = _welcome(messages, clock)
        except (ConfigError, HostLostError, StoppedError):
            messages.close()
            raise
        except (EOFError, OSError, ValueError, TypeError):
            messages.close()  # the first host was not ready, or begins again
            time.sleep(TICK_SECONDS)
        else:
            messages.longest_bytes = LONGEST_BYTES
            return messages, welcome


def _welcome(messages: MessageSocket, clock: Clock) -> dict[str, Any]:
    with selectors.DefaultSelector() as selector:
        selector.register(messages, selectors.EVENT_READ)
        while True:
            clock.tick("waits for the other hosts", [0])
            if not selector.select(TICK_SECONDS):
                continue
            for message in messages.receive():
                if "refused" in message:
                    raise ConfigError(printable(str(message["refused"]), _LONGEST_REFUSAL))
                if "welcome" in message:
                    return dict(message["welcome"])
