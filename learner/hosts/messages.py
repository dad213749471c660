"""Messages between the hosts of a run: JSON objects over a socket, each after its length."""

import contextlib
import json
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any

_LENGTH = struct.Struct("!I")
# What the indices of a host's shards take at a save, by far; a stranger may not ask for more memory
# than a hello does.
LONGEST_BYTES = 1 << 28
LONGEST_HELLO_BYTES = 1 << 16
_CHUNK_BYTES = 1 << 16
# How long a peer may leave unread what it is sent.
_SEND_SECONDS = 20.0


class MessageSocket:
    """A socket that carries messages. Any thread sends; one receives.

    Sending never waits for ever: a peer that reads nothing is an OSError after 20 seconds.
    """

    def __init__(self, connection: socket.socket, longest_bytes: int = LONGEST_BYTES):
        """Takes the socket over; `longest_bytes`: of a message that is received."""
        connection.settimeout(_SEND_SECONDS)
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connection
        self._sending = threading.Lock()
        self._received = bytearray()
        self.longest_bytes = longest_bytes

    def fileno(self) -> int:
        """For `select`."""
        return self._socket.fileno()

    def send(self, message: Any) -> None:
        """Sends a message. Raises OSError if the peer is gone or does not read."""
        data = _packed(message)
        with self._sending:
            self._socket.sendall(data)

    def beat(self) -> None:
        """Says that this host is alive, unless something else is being said. Raises as `send`."""
        if self._sending.acquire(blocking=False):
            try:
                self._socket.sendall(_packed({}))
            finally:
                self._sending.release()

    def receive(self) -> Iterator[Any]:
        """What has arrived: call it when the socket is readable; maybe nothing is whole yet.

        Raises EOFError if the peer has closed, OSError if it is gone, ValueError for what is no
        message.
        """
        data = self._socket.recv(_CHUNK_BYTES)
        if not data:
            raise EOFError
        self._received += data
        while len(self._received) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._received)
            if length > self.longest_bytes:
                raise ValueError(f"expected at most {self.longest_bytes:,} bytes, got {length:,}")
            end = _LENGTH.size + length
            if len(self._received) < end:
                return
            try:
                message = json.loads(bytes(self._received[_LENGTH.size : end]))
            except RecursionError as error:
                raise ValueError("expected an object that is not nested so deep") from error
            del self._received[:end]
            if not isinstance(message, dict):
                raise ValueError(f"expected an object, got {type(message).__name__}")
            yield message

    def shut(self) -> None:
        """Ends the connection; a thread that waits for it finds that out, and may still use it."""
        with contextlib.suppress(OSError):  # the peer has closed it
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Ends the connection, and closes the socket, which no thread may use any more."""
        self.shut()
        self._socket.close()


def _packed(message: Any) -> bytes:
    data = json.dumps(message, separators=(",", ":")).encode()
    return _LENGTH.pack(len(data)) + data
