"""The Connect call as an env server makes it, without threads but those that use it.

gRPC's own call of this kind has two, one that takes its events and one that sends, and each message
wakes them and the thread that receives several times over. gRPC offers nothing else for a stream of
both directions, so this uses what its own is made of: `grpc._cython.cygrpc`, the same in grpcio
1.76 and 1.85. Where another version has something else there, `open_call` gives gRPC's own call; so
it does before 1.80, where gRPC itself reads and writes nothing while no thread waits for an event.
"""

import contextlib
import functools
import importlib
import operator
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol, Self

import grpc

from seedrl.wire.channel import CONNECT, connect_method
from seedrl.wire.framing import (
    ToEnvServer,
    ToLearner,
    WireError,
    encode_from_env_server,
    receive_from_learner,
)

Metadata = tuple[tuple[str, str], ...]
Received = ToEnvServer | WireError

# That reads, writes and answers pings in native threads of its own; seen on Linux.
_LEAST_VERSION = (1, 80)
_NO_FLAGS = 0
# What else of gRPC is used once a call has begun, when it is too late for another one.
_used_later = operator.attrgetter(
    "ReceiveMessageOperation",
    "SendMessageOperation",
    "SendCloseFromClientOperation",
    "StatusCode.cancelled",
    "SegregatedCall.operate",
    "SegregatedCall.next_event",
    "SegregatedCall.cancel",
)
_CODES = {code.value[0]: code for code in grpc.StatusCode}


class Outgoing(Protocol):
    """What is to be sent."""

    def take(self, *, wait: bool) -> ToLearner | None:
        """The next message, None at the end; waits for it, or raises queue.Empty. Not for two."""
        ...

    def __bool__(self) -> bool:
        """Whether there is one."""
        ...


class StreamCall(Protocol):
    """A call. One thread receives, and closes; any may do the rest."""

    def __iter__(self) -> Iterator[Received]: ...

    def __next__(self) -> Received:
        """The next message. Raises grpc.RpcError for a status other than OK."""
        ...

    def push(self) -> None:
        """Has what is outgoing sent; may wait until what was outgoing before is on its way."""
        ...

    def read_ahead(self, on_end: Callable[[], object]) -> None:
        """From now on calls `on_end` when the stream ends, also while nobody asks for messages."""
        ...

    def cancel(self) -> None:
        """Ends the stream."""
        ...

    def close(self) -> None:
        """Ends the stream, and frees what it holds."""
        ...


class StreamError(grpc.RpcError):
    """The status with which a stream has ended."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(f"{code.name}: {details}")
        self._code, self._details = code, details

    def code(self) -> grpc.StatusCode:
        """As that of gRPC's own error."""
        return self._code

    def details(self) -> str:
        """As those of gRPC's own error."""
        return self._details


class UnthreadedCall:
    """A call whose events are taken by the thread that receives, or by one that sends meanwhile.

    gRPC itself reads, writes and answers pings in threads of its own, whoever takes events. Only
    one message may be on its way at a time: the next one is sent by whoever takes the event that
    the last one has left.
    """

    def __init__(self, channel: Any, metadata: Metadata, outgoing: Outgoing) -> None:
        """Raises ImportError, AttributeError or TypeError if gRPC is another inside."""
        self._grpc: Any = importlib.import_module("grpc._cython.cygrpc")
        _used_later(self._grpc)
        kinds = self._grpc.OperationType
        self._send, self._close = kinds.send_message, kinds.send_close_from_client
        self._receive, self._end = kinds.receive_message, kinds.receive_status_on_client
        self._has_sent_all = False
        self._outgoing = outgoing
        # Taken before the other; by who waits for events, so that there is one of these.
        self._taking_events = threading.Lock()
        self._lock = threading.Lock()  # guards what follows
        self._due = {kinds.send_initial_metadata, kinds.receive_initial_metadata, self._end}
        self._received: bytes | None = None
        self._status = StreamError(grpc.StatusCode.UNKNOWN, "the stream has no status")
        self._ahead: queue.SimpleQueue[Received | Exception] | None = None
        start = (
            self._grpc.SendInitialMetadataOperation(metadata, _NO_FLAGS),
            self._grpc.ReceiveStatusOnClientOperation(_NO_FLAGS),
        )
        first = (self._grpc.ReceiveInitialMetadataOperation(_NO_FLAGS),)
        self._call: Any = channel._channel.segregated_call(
            self._grpc.PropagationConstants.GRPC_PROPAGATE_DEFAULTS,
            CONNECT.encode(),
            None,
            None,
            metadata,
            None,
            ((start, None), (first, None)),
            self._grpc.build_census_context(),
            None,
        )

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Received:
        """The next message. Raises StreamError for a status other than OK."""
        if self._ahead is None:
            return self._next()
        item = self._ahead.get()
        if isinstance(item, Exception) and not isinstance(item, WireError):
            self._ahead.put(item)  # for who asks again
            raise item
        return item

    def _next(self) -> Received:
        with self._lock:
            self._begin(self._receive, self._grpc.ReceiveMessageOperation(_NO_FLAGS))
        # Here nothing waits for what is sent: it may take as long as a learner takes to read it.
        self._send_next()
        with self._taking_events:
            # Of an ended stream nothing is due any more.
            while self._received is None and self._due:
                self._take_event()
            data, self._received = self._received, None
        self._send_next()  # who found that events are taken left the rest to this thread
        if data is not None:
            return receive_from_learner(data)
        if self._status.code() is grpc.StatusCode.OK:
            raise StopIteration
        raise self._status

    def push(self) -> None:
        """See `StreamCall.push`."""
        while self._send_next() and self._taking_events.acquire(blocking=False):
            try:
                if self._received is not None:
                    return  # the thread that receives waits for this lock, and sends the rest
                if self._send in self._due:
                    self._take_event()
            finally:
                self._taking_events.release()

    def read_ahead(self, on_end: Callable[[], object]) -> None:
        """See `StreamCall.read_ahead`; begins a thread, which lives as long as the stream."""
        ahead = self._ahead = queue.SimpleQueue[Received | Exception]()

        def read() -> None:
            try:
                while True:
                    ahead.put(self._next())
            except Exception as end:  # whatever it is, it is for who receives
                ahead.put(end)
            on_end()

        threading.Thread(target=read, name="stream", daemon=True).start()

    def cancel(self) -> None:
        """See `StreamCall.cancel`."""
        self._call.cancel(self._grpc.StatusCode.cancelled, "Locally cancelled by application!")

    def close(self) -> None:
        """See `StreamCall.close`: gRPC frees a call once its last event was taken."""
        self.cancel()
        with contextlib.suppress(grpc.RpcError):
            for _ in self:
                pass

    def _begin(self, kind: Any, operation: Any) -> None:
        if self._call.operate((operation,), None):  # else the stream has ended
            self._due.add(kind)

    def _send_next(self) -> bool:
        """Sends a message unless one is on its way; whether there is another one behind it."""
        with self._lock:
            if self._end not in self._due or self._has_sent_all:
                return False
            if self._send not in self._due and self._outgoing:
                message = self._outgoing.take(wait=False)
                if message is None:
                    self._has_sent_all = True
                    self._begin(self._close, self._grpc.SendCloseFromClientOperation(_NO_FLAGS))
                    return False
                data = encode_from_env_server(message)
                self._begin(self._send, self._grpc.SendMessageOperation(data, _NO_FLAGS))
            return bool(self._outgoing)

    def _take_event(self) -> None:
        try:
            event = self._call.next_event()
        except BaseException:
            # A signal's handler has raised: gRPC has given the call up, and fails if it is asked
            # for another event.
            with self._lock:
                self._due.clear()
            raise
        with self._lock:
            for operation in event.batch_operations:
                kind = operation.type()
                self._due.discard(kind)
                if kind == self._receive:
                    self._received = operation.message()
                elif kind == self._end:
                    code = _CODES.get(operation.code(), grpc.StatusCode.UNKNOWN)
                    self._status = StreamError(code, _text(operation.details()))
        self._send_next()


class ThreadedCall:
    """gRPC's own call."""

    def __init__(self, channel: grpc.Channel, metadata: Metadata, outgoing: Outgoing) -> None:
        to_send = iter(functools.partial(outgoing.take, wait=True), None)
        self._call: Any = connect_method(channel)(to_send, metadata=metadata)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Received:
        """The next message. Raises grpc.RpcError for a status other than OK."""
        message: Received = next(self._call)
        return message

    def push(self) -> None:
        """Its own thread sends."""

    def read_ahead(self, on_end: Callable[[], object]) -> None:
        """See `StreamCall.read_ahead`."""
        if not self._call.add_callback(on_end):
            on_end()

    def cancel(self) -> None:
        """See `StreamCall.cancel`."""
        self._call.cancel()

    def close(self) -> None:
        """See `StreamCall.close`."""
        self._call.cancel()


def open_call(channel: grpc.Channel, metadata: Metadata, outgoing: Outgoing) -> StreamCall:
    """Begins a call; does not wait for the learner."""
    if sys.platform != "linux" or _version() < _LEAST_VERSION:
        return ThreadedCall(channel, metadata, outgoing)
    try:
        return UnthreadedCall(channel, metadata, outgoing)
    except (ImportError, AttributeError, TypeError):
        return ThreadedCall(channel, metadata, outgoing)


def _version() -> tuple[int, ...]:
    return tuple(map(int, grpc.__version__.split(".")[:2]))


def _text(words: bytes | str) -> str:
    return words.decode(errors="replace") if isinstance(words, bytes) else words
