"""The gRPC service: carries messages between env servers and the hub.

Threads: gRPC has one of its own; each stream has two, one that reads (`Connection.read`) and one of
the server's pool that sends what is in the connection's outbox; one reads all links; one, the
watch, looks at deadlines. None of them holds a lock while it waits.
"""

import functools
import logging
import queue
import selectors
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from learner.runtime.watchdog import AwakeClock
from learner.runtime.worker import Worker
from learner.serving.access import AddressLock, TokenInterceptor, host_of
from learner.serving.connection import Connection
from learner.serving.handshake import message_limit
from learner.serving.hub import Hub
from learner.serving.peer import EndError, unavailable
from seedrl.config import ServingConfig
from seedrl.errors import AddressInUseError
from seedrl.wire import channel, seedrl_pb2
from seedrl.wire.credentials import Certificates
from seedrl.wire.framing import receive_from_env_server
from seedrl.wire.local_link import Link, connect_link

# A client sends Hello as it opens a stream.
HELLO_SECONDS = 2.0
# Calls beyond one for each slot: streams before their Hello, and health checks.
SPARE_CALLS = 64
# For a peer to take what its connection ends with: one that does not read is cut off.
_TAKE_END_SECONDS = 5.0
_WATCH_SECONDS = 0.25
_STOP_SECONDS = 5.0
# How soon a stop is noticed where nothing arrives over links.
_POLL_SECONDS = 0.05
# Between two warnings of an address that any program may use.
_WARNING_SECONDS = 60.0

_logger = logging.getLogger(__name__)


class _Stream:
    """A call of Connect that is open. Only the watch uses the times.

    `since` is when its present state (before Hello, before Ready, ended) was first seen.
    """

    def __init__(self, connection: Connection, context: grpc.ServicerContext) -> None:
        self.connection, self.context = connection, context
        self._state, self._since = "", 0.0

    def seconds_in(self, state: str, now: float) -> float:
        """How long the watch has seen it in this state."""
        if state != self._state:
            self._state, self._since = state, now
        return now - self._since


class Service:
    """Brings env servers to a hub. Owns the gRPC server; may be called from any thread."""

    def __init__(self, hub: Hub, config: ServingConfig):
        """Raises ConfigError if the files of token or certificates cannot be used."""
        self.address = config.bind
        self.hub = hub
        self._config = config
        self._finish_reason: str | None = None
        self._lock: AddressLock | None = None
        files = (config.certificate, config.private_key, config.authority)
        self._credentials = Certificates(
            *(Path(path) if path else None for path in files)
        ).of_server()
        self._interceptor = TokenInterceptor(config.token_file, hub.turn_away)
        self._longest = message_limit(config, hub.environment, hub.spec)
        self._connect_link = functools.partial(connect_link, max_message_bytes=self._longest)
        self._links = LinkReader()
        self._streams: dict[_Stream, None] = {}  # those of all calls that are open
        self._clock = AwakeClock()
        self._next_warning = 0.0
        self._stopping = threading.Event()
        self._watch = Worker("watch", self._look, threading.Event())
        self._server: grpc.Server | None = None

    def start(self) -> str:
        """Binds and serves; returns the address with its real port. Raises AddressInUseError."""
        self._lock = AddressLock(self.address)
        calls = self._config.training_slots + self._config.evaluation_slots + SPARE_CALLS
        self._server = server = grpc.server(
            # Threads begin with the calls that need them. With more calls than threads some would
            # wait without a word, so gRPC refuses them.
            ThreadPoolExecutor(calls, thread_name_prefix="stream"),
            interceptors=[self._interceptor],
            options=channel.server_options(self._longest),
            maximum_concurrent_rpcs=calls,
        )
        handler = channel.learner_handler(self._connect, self._longest)
        server.add_generic_rpc_handlers((handler,))
        checks = health.HealthServicer()
        checks.set(channel.SERVICE, health_pb2.HealthCheckResponse.SERVING)
        health_pb2_grpc.add_HealthServicer_to_server(checks, server)
        try:
            if self._credentials is None:
                port = server.add_insecure_port(self.address)
            else:
                port = server.add_secure_port(self.address, self._credentials)
        except RuntimeError as error:
            self._lock.release()
            raise AddressInUseError(
                f"cannot serve on {self.address}: the address is in use or not of this machine; "
                "stop the other process or choose another serving.bind"
            ) from error
        server.start()
        self._watch.start()
        if not self.address.startswith("unix:"):
            self.address = f"{self.address.rsplit(':', 1)[0]}:{port}"
        return self.address

    @property
    def failure(self) -> BaseException | None:
        """The exception that has ended one of its own threads."""
        return self._watch.failure or self._links.failure

    def finish(self, reason: str, *, grace_seconds: float = 2.0) -> None:
        """Tells every env server that training is over, and stops serving."""
        self._finish_reason = reason
        self._stop(None, grace_seconds)

    def stop(self, *, grace_seconds: float = 1.0) -> None:
        """Stops serving; env servers keep trying to return."""
        self._stop(unavailable("the learner is stopping; come back later"), grace_seconds)

    def _stop(self, end: EndError | None, grace_seconds: float) -> None:
        self.hub.close(end)
        if self._server is not None:
            # It ends all calls by then, also of peers that do not read.
            self._server.stop(grace_seconds).wait(grace_seconds + _STOP_SECONDS)
        self._stopping.set()
        self._watch.stop(_STOP_SECONDS)
        self._links.stop()
        if self._lock is not None:
            self._lock.release()

    def _connect(
        self, requests: Iterator[channel.Received], context: grpc.ServicerContext
    ) -> Iterator[channel.Answer]:
        """One call, in a thread of the pool."""
        outbox: queue.SimpleQueue[channel.Answer | Exception | None] = queue.SimpleQueue()
        connection = Connection(
            self.hub,
            host_of(context.peer()),
            outbox,
            self._longest,
            self._config.step_deadline_seconds,
            connect_link=self._connect_link,
        )
        stream = _Stream(connection, context)
        self._streams[stream] = None
        # The client may end the call while this thread waits at the outbox. If it has done so
        # already, gRPC does not call back: then the reader finds the end.
        context.add_callback(connection.end)
        reading = (requests, self._links.add)
        threading.Thread(target=connection.read, args=reading, name="reader", daemon=True).start()
        try:
            while (item := outbox.get()) is not None:
                if isinstance(item, EndError):
                    context.abort(item.code, item.details)
                assert not isinstance(item, Exception), item
                yield item
            if self._finish_reason is not None:
                finish = seedrl_pb2.Finish(reason=self._finish_reason)
                yield seedrl_pb2.FromLearner(finish=finish)
        finally:
            connection.end()
            del self._streams[stream]

    def _look(self) -> None:
        """One look of the watch at all streams."""
        self._stopping.wait(_WATCH_SECONDS)
        # Time in which this process was suspended does not count: what arrived then is not read.
        now = self._clock.tick()
        for stream in self._streams.copy():
            self._hold_to_deadlines(stream, now)
        is_open = self._config.insecure and not self.address.startswith("unix:")
        if is_open and now >= self._next_warning:
            self._next_warning = now + _WARNING_SECONDS
            _logger.warning(
                "warning: serving.insecure: whoever reaches %s can feed this run", self.address
            )

    def _hold_to_deadlines(self, stream: _Stream, now: float) -> None:
        """A silent stream must not hold a call or the slots that Hello reserves for ever."""
        connection = stream.connection
        ready = self._config.ready_deadline_seconds
        if connection.has_ended:
            # Its end stands behind what its peer does not read, and would do so for ever.
            if stream.seconds_in("ended", now) > _TAKE_END_SECONDS:
                stream.context.cancel()
        elif not connection.has_said_hello:
            if stream.seconds_in("silent", now) > HELLO_SECONDS:
                _end(connection, f"expected hello within {HELLO_SECONDS:.0f} seconds")
        elif not connection.is_ready and stream.seconds_in("building", now) > ready:
            _end(
                connection,
                f"expected ready within {ready:g} seconds of hello "
                "(serving.ready_deadline_seconds)",
            )


def _end(connection: Connection, details: str) -> None:
    connection.close(EndError(grpc.StatusCode.UNAVAILABLE, details))


class LinkReader:
    """Brings to connections what arrives over their links. `add` may be called by any thread.

    One thread for all: with one for each, acting would stand in line with all of them for the
    interpreter, several times in a step.
    """

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._worker = Worker("links", self._read, threading.Event())
        self._worker.start()

    @property
    def failure(self) -> BaseException | None:
        """What the thread has died of; then no link is read any more."""
        return self._worker.failure

    def add(self, link: Link, connection: Connection) -> None:
        """Reads `link` until it or `connection` ends, then closes both. Not after `stop`."""
        self._selector.register(link, selectors.EVENT_READ, (link, connection))

    def stop(self) -> None:
        """Ends the thread, and the links and connections that are open. May be called twice."""
        if self._worker.stop(_STOP_SECONDS) and self._selector.get_map() is not None:
            for key in list(self._selector.get_map().values()):
                self._drop(*key.data)
            self._selector.close()

    def _read(self) -> None:
        for key, _ in self._selector.select(_POLL_SECONDS):
            self._receive(*key.data)

    def _receive(self, link: Link, connection: Connection) -> None:
        try:
            messages = link.receive_at_once()
        except Exception as error:  # one link's must not be the end of the others
            connection.fail(error)
            messages = None
        if messages is not None and all(
            map(connection.receive, map(receive_from_env_server, messages))
        ):
            return
        self._drop(link, connection)

    def _drop(self, link: Link, connection: Connection) -> None:
        self._selector.unregister(link)
        try:
            connection.close()
        finally:
            link.close()
