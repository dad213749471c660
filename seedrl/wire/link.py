"""A link: messages between an env server and a learner of one host, past gRPC.

The Connect stream stays what it is: the lease, its handshake and its end. But steps and actions of
processes that share a kernel need no HTTP/2 between them: they take a Unix socket, on which each
message is preceded by its length as a little-endian uint32. The env server listens, under a random
name outside of the file system; a learner that cannot reach it, being on another host or in another
network namespace (a container's own, say), leaves everything to the stream. Linux only: elsewhere
there are no such names.
"""

import contextlib
import secrets
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator, Sequence

import numpy as np

from seedrl.timing import GRACE_SECONDS
from seedrl.wire.framing import (
    FramedStep,
    WireError,
    too_long,
)
from seedrl.wire.payload import Buffer

LENGTH = struct.Struct("<I")
_SECRET_SECONDS = 0.5  # from a connection until its secret has arrived
_MOST_WAITING = 4096  # as many as Linux allows by default (net.core.somaxconn)
_READ_AHEAD_BYTES = 2**16
# The kernel holds what is sent but not read, and does not let us ask for more than it likes.
_KERNEL_BUFFER_BYTES = 2**20
# Of that it gives this much at least (net.core.wmem_max is 208 KiB by default, and it counts up to
# twice the bytes of a message and 512 more; Linux 6.18). Less if net.core.wmem_max is set below 128
# KiB: use --no-local-link there.
_ROOM_BYTES = 2**17
_MESSAGE_BYTES = 512


class UnusableLinkError(Exception):
    """The learner has taken a link that does not carry its messages; the text says why."""


class Link:
    """One end of a link. Any thread may `end` it, one sends, receives and closes.

    Whichever side ends it, or dies, both stop receiving, and what is sent afterwards is dropped:
    why it has ended is what the stream says.
    """

    def __init__(self, connection: socket.socket, max_message_bytes: int = 2**32) -> None:
        """`max_message_bytes` is the longest message that is accepted; by default any."""
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _KERNEL_BUFFER_BYTES)
        self.connection = connection
        self._max_message_bytes = max_message_bytes
        self._unread = b""  # the beginning of a length
        self._begun = memoryview(b"")  # a message of which the first bytes have come
        self._num_come = 0
        # Nobody may use a descriptor that is being closed: its number could be another file's then.
        self.closing = threading.Lock()

    def send(self, message: Buffer | FramedStep) -> None:
        """Sends `message`, and waits for the other side to make room.

        Once it returns the memory of a step may be overwritten.
        """
        if isinstance(message, FramedStep):
            length, parts = message.num_bytes, (LENGTH.pack(message.num_bytes), *message.parts)
        else:
            length, parts = len(message), (LENGTH.pack(len(message)), message)
        try:
            sent = self.connection.sendmsg(parts)
            if sent < LENGTH.size + length:  # a signal came between
                self.connection.sendall(b"".join(parts)[sent:])
        except OSError:
            self.end()

    def receive(self) -> Iterator[Buffer]:
        """Messages until the link ends. Raises WireError if one is too long."""
        while (messages := self.read(0)) is not None:
            yield from messages

    def read(self, flags: int) -> Sequence[Buffer] | None:
        """Messages of one `recv` with those flags, maybe none; None at the end."""
        try:
            if self._begun:
                num_read = self.connection.recv_into(self._begun[self._num_come :], 0, flags)
                self._num_come += num_read
                if self._num_come < len(self._begun):
                    return () if num_read else None
                message, self._begun = self._begun, memoryview(b"")
                return (message,)
            data = self.connection.recv(_READ_AHEAD_BYTES, flags)
        except BlockingIOError:
            return ()
        except OSError:
            # Reset by a peer that was killed with something unread, or ended here meanwhile.
            return None
        return self._split(self._unread + data) if data else None

    def _split(self, data: bytes) -> Sequence[Buffer]:
        view = memoryview(data)  # messages are not copied out of what was read
        messages = []
        start = 0
        while len(data) - start >= LENGTH.size:
            (length,) = LENGTH.unpack_from(data, start)
            if length > self._max_message_bytes:
                raise WireError(too_long(self._max_message_bytes, length))
            start += LENGTH.size
            message = view[start : start + length]
            if len(message) < length:
                # Not a bytearray: that would be filled with zeros first, half the time of a read.
                self._begun, self._num_come = np.empty(length, np.uint8).data, len(message)
                self._begun[: self._num_come] = message
            else:
                messages.append(message)
            start += len(message)
        self._unread = data[start:]
        return messages

    def end(self) -> None:
        """Makes both sides stop receiving."""
        with self.closing, contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Ends it and gives the socket back."""
        self.end()  # so that nobody goes on sending
        with self.closing:
            self.connection.close()


class Listener:
    """Where an env server waits for the learner's end of a link. Raises OSError if it cannot.

    Attributes:
      name: for Hello: that of the socket, which anybody on this host can see, and a secret, which
        only the learner can know why.
    """

    def __init__(self) -> None:
        socket_name = f"seedrl-{secrets.token_hex(16)}"
        self._secret = secrets.token_hex(16).encode()
        self.name = f"{socket_name}/{self._secret.decode()}"
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(address_of(socket_name))
        # Other users can connect too: they must not fill the queue before the learner is in it.
        self._socket.listen(_MOST_WAITING)

    def accept(self) -> Link | None:
        """The link to whoever knows the secret; None if nobody has come in time."""
        # The learner connects before it says so in Assign, and sends the secret with connecting.
        ends = time.monotonic() + GRACE_SECONDS
        try:
            while (left := ends - time.monotonic()) > 0:
                self._socket.settimeout(left)
                connection, _ = self._socket.accept()
                if self._is_learner(connection, ends):
                    connection.settimeout(None)
                    return Link(connection)
                connection.close()
        except OSError:
            pass
        return None

    def _is_learner(self, connection: socket.socket, ends: float) -> bool:
        # Any user can connect to an abstract socket, but only the learner has the secret. A silent
        # connection must not delay the next one for long.
        secret, ends = b"", min(ends, time.monotonic() + _SECRET_SECONDS)
        # Other languages may send it in pieces.
        with contextlib.suppress(OSError):
            while (left := ends - time.monotonic()) > 0:
                connection.settimeout(left)
                piece = connection.recv(len(self._secret) - len(secret))
                if not piece:
                    break
                secret += piece
        return secrets.compare_digest(secret, self._secret)

    def close(self) -> None:
        """Forgets the name."""
        self._socket.close()


def has_room(messages: Sequence[int]) -> bool:
    """True if a link holds messages of these bytes, all unread.

    A learner waits for no env server: if its actions for all groups did not fit, the link would end
    with the first steps, again and again.
    """
    return sum(messages) + _MESSAGE_BYTES * len(messages) <= _ROOM_BYTES


def listen() -> Listener | None:
    """A listener, if this system has such sockets to give."""
    if sys.platform != "linux":
        return None
    try:
        return Listener()
    except OSError:
        return None


def address_of(socket_name: str) -> bytes:
    return b"\0" + socket_name.encode()
