"""The learner's side of Connect streams, played message by message."""

import contextlib
import itertools
import os
import queue
import socket
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import grpc

from seedrl.wire.channel import CONNECT, SERVICE, server_options
from seedrl.wire.local_link import Link
from seedrl.wire.seedrl_pb2 import Alive, FromEnvServer

MAX_MESSAGE_BYTES = 64 * 2**20
_STREAMS = 16
_LOOK_SECONDS = 0.01
# Long enough for the other side to read a piece by itself.
_PIECE_SECONDS = 0.02
_LENGTH = struct.Struct("<I")
_ALIVE = FromEnvServer(alive=Alive()).SerializeToString()


class Status(NamedTuple):
    """How a stream is ended."""

    code: grpc.StatusCode
    details: str


class Received(NamedTuple):
    """A message's bytes, and whether the link brought them; None at the end of either."""

    data: bytes | memoryview | None
    is_linked: bool


class PlayedStream:
    """One stream. `receive`, `send` and `end` are one thread's; gRPC and a link fill the queue."""

    def __init__(self, requests: Iterator[bytes]) -> None:
        self._incoming: queue.SimpleQueue[Received] = queue.SimpleQueue()
        self._outgoing: queue.SimpleQueue[bytes | Status] = queue.SimpleQueue()
        self._link: Link | None = None
        self._has_ended = False
        threading.Thread(target=self._read, args=(requests,), daemon=True).start()

    def receive(self, seconds: float) -> Received:
        """The next message; raises queue.Empty if none arrives in time."""
        return self._incoming.get(timeout=seconds)

    @property
    def is_linked(self) -> bool:
        """Whether messages take a link."""
        return self._link is not None

    def has_message(self, *, within_seconds: float = 0.0) -> bool:
        """Whether `receive` would return at once, now or soon."""
        deadline = time.monotonic() + within_seconds
        while self._incoming.empty() and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
        return not self._incoming.empty()

    def send(self, message: bytes) -> None:
        """Sends an encoded FromLearner, over the link if there is one."""
        if self._link is not None:
            self._link.send(message)
        else:
            self.send_over_grpc(message)

    def send_in_pieces(self, messages: Sequence[bytes]) -> None:
        """Sends encoded FromLearners over the link so that no read brings just one of them."""
        assert self._link is not None
        data = b"".join(_LENGTH.pack(len(message)) + message for message in messages)
        with socket.socket(fileno=os.dup(self._link.fileno())) as raw:
            # In the first length, in the first message, and behind the beginning of the second.
            cuts = (0, 2, 7, _LENGTH.size + len(messages[0]) + 2, len(data))
            for start, end in itertools.pairwise(cuts):
                raw.sendall(data[start:end])
                time.sleep(_PIECE_SECONDS)

    def send_over_grpc(self, message: bytes) -> None:
        """Sends an encoded FromLearner, also if there is a link."""
        self._outgoing.put(message)

    def end(self, status: Status) -> None:
        """Ends the stream with `status`, once."""
        if not self._has_ended:
            self._has_ended = True
            self._outgoing.put(status)

    def use(self, link: Link) -> None:
        """From now on messages take `link`."""
        self._link = link
        threading.Thread(target=self._read_link, args=(link,), daemon=True).start()

    def answers(self, context: grpc.ServicerContext) -> Iterator[bytes]:
        """What gRPC is to send, until the stream ends on either side."""
        gone = Status(grpc.StatusCode.CANCELLED, "")
        if not context.add_callback(lambda: self._outgoing.put(gone)):
            return
        while not isinstance(item := self._outgoing.get(), Status):
            yield item
        if item.code != grpc.StatusCode.OK:
            context.set_code(item.code)
            context.set_details(item.details)

    def _read(self, requests: Iterator[bytes]) -> None:
        # It raises if the stream is cancelled, by whom it may be.
        with contextlib.suppress(Exception):
            for request in requests:
                if request != _ALIVE:  # on the stream at any time, and nobody waits for it
                    self._incoming.put(Received(request, False))
        self._incoming.put(Received(None, False))

    def _read_link(self, link: Link) -> None:
        with contextlib.suppress(ValueError):  # a length beyond the limit: that is its end too
            for message in link.receive():
                self._incoming.put(Received(message, True))
        self._incoming.put(Received(None, True))


def longest_silence(address: str, seconds: float, enough_seconds: float) -> float:
    """Drops every connection to `address` for that long; returns the longest wait for one.

    Ends as soon as that is `enough_seconds`.
    """
    host, _, port = address.rpartition(":")
    longest = 0.0
    with socket.create_server((host, int(port))) as listener:
        last = time.monotonic()
        end = last + seconds
        while longest < enough_seconds and (now := time.monotonic()) < end:
            listener.settimeout(max(min(end, last + enough_seconds) - now, _LOOK_SECONDS))
            is_there = True
            try:
                listener.accept()[0].close()
            except TimeoutError:
                is_there = False
            now = time.monotonic()
            longest = max(longest, now - last)
            last = now if is_there else last
    return longest


class PlayedLearner:
    """A gRPC server on a free port of this machine, which may go away and return to it.

    Attributes:
      address: where it is, `127.0.0.1:port`.
      streams: those that env servers open, in order.
    """

    def __init__(self) -> None:
        self.streams: queue.SimpleQueue[PlayedStream] = queue.SimpleQueue()
        self.address = "127.0.0.1:0"
        self._server: grpc.Server | None = None
        self.start()

    def start(self) -> None:
        """Listens, at the port that it had before if there was one."""
        method: Any = grpc.stream_stream_rpc_method_handler(self._connect)
        name = CONNECT.rpartition("/")[2]
        handler = grpc.method_handlers_generic_handler(SERVICE, {name: method})
        self._server = grpc.server(
            ThreadPoolExecutor(_STREAMS, "played learner"),
            options=server_options(MAX_MESSAGE_BYTES),
        )
        self._server.add_generic_rpc_handlers((handler,))
        self.address = f"127.0.0.1:{self._server.add_insecure_port(self.address)}"
        self._server.start()

    def stop(self) -> None:
        """Cuts all streams, and listens no more."""
        assert self._server is not None
        self._server.stop(0).wait()

    def _connect(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        stream = PlayedStream(requests)
        self.streams.put(stream)
        yield from stream.answers(context)
