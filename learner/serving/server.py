"""The gRPC service: carries messages between env servers and the hub.

Threads: gRPC has one of its own; each stream has two, one that reads (`Connection.read`) and one of
the server's pool that sends what is in the connection's outbox; one reads all links; one, the
watch, looks at deadlines. None of them holds a lock while it waits.
"""

import contextlib
import functools
import logging
import math
import queue
import selectors
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

import grpc

from learner.runtime.worker import Worker
from learner.serving.access import TokenInterceptor, host_of, lock_address
from learner.serving.connection import Connection
from learner.serving.hub import EndError, Hub, unavailable
from seedrl.config import EnvironmentConfig, ServingConfig
from seedrl.errors import AddressInUseError, UserError
from seedrl.specs import EnvSpec
from seedrl.timing import GRACE_SECONDS, POLL_SECONDS
from seedrl.wire import contract, learner_end, seedrl_pb2
from seedrl.wire.credentials import Certificates
from seedrl.wire.framing import receive_from_env_server
from seedrl.wire.learner_end import LearnerLink, connect_link
from seedrl.wire.payload import ActionLayout, StepLayout

# A client sends Hello as it opens a stream.
HELLO_SECONDS = 2.0
# Calls beyond one for each slot: streams before their Hello.
_SPARE_CALLS = 64
# The limit of a message as long as no spec is known.
_UNKNOWN_BYTES = 4 * 2**20
# An env server that was refused or lost its connection has connected again by then: it pauses for
# a second at most.
_RETURN_SECONDS = 2.0
# For the headers of several groups in one message, and the tag and length before them.
_SPARE_BYTES = 1.25

_logger = logging.getLogger(__name__)


class Service:
    """Brings env servers to a hub. Owns the gRPC server; may be called from any thread.

    Inside its `with` it serves. A normal end calls `finish` (training is over) or `stop` (env
    servers come back later) first; an error that leaves the `with` stops it.
    """

    def __init__(self, hub: Hub, config: ServingConfig):
        """Raises ConfigError if the files of token or certificates cannot be used."""
        self.address = config.bind
        self.hub = hub
        self._config = config
        self._finish_reason: str | None = None
        files = (config.certificate, config.private_key, config.authority)
        self._credentials = Certificates(
            *(Path(path) if path else None for path in files)
        ).of_server()
        self._interceptor = TokenInterceptor(config.token_file, hub.turn_away)
        self._longest = message_limit(config, hub.environment, hub.spec)
        self._connect_link = functools.partial(connect_link, max_message_bytes=self._longest)
        self._links = LinkReader()
        # Of all calls that are open: each call's thread adds and removes its own.
        self._calls: dict[Connection, grpc.ServicerContext] = {}
        self._last_end = -math.inf  # of a call; each call's thread sets it
        self._lock = contextlib.ExitStack()  # on the address
        self._stopping = threading.Event()
        self._watch = Worker("watch", self._look)
        self._server: grpc.Server | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop(grace_seconds=0.0)
            raise
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is not None:
            # A mistake of the user first reaches the env servers, which end with it.
            self.stop(grace_seconds=1.0 if isinstance(error, UserError) else 0.0)

    def start(self) -> str:
        """Binds and serves; returns the address with its real port. Raises AddressInUseError."""
        is_private = self.address.startswith("unix:")
        self._lock = lock_address(self.address)
        calls = self._config.training_slots + self._config.evaluation_slots + _SPARE_CALLS
        self._server = server = grpc.server(
            # Threads start with the calls that need them. With more calls than threads some would
            # wait without a word, so gRPC refuses them.
            ThreadPoolExecutor(calls, thread_name_prefix="stream"),
            interceptors=[self._interceptor],
            # A longer message is refused before it is read.
            options=learner_end.server_options(self._longest),
            maximum_concurrent_rpcs=calls,
        )
        handler = learner_end.learner_handler(self._connect, self._longest)
        server.add_generic_rpc_handlers((handler,))
        try:
            if self._credentials is None:
                port = server.add_insecure_port(self.address)
            else:
                port = server.add_secure_port(self.address, self._credentials)
        except RuntimeError as error:
            self._lock.close()
            raise AddressInUseError(
                f"cannot serve on {self.address}: the address is in use or not of this machine; "
                "stop the other process or choose another serving.bind"
            ) from error
        server.start()
        self._watch.start()
        if not is_private:
            self.address = f"{self.address.rsplit(':', 1)[0]}:{port}"
        if self._config.insecure and not is_private:
            _logger.warning(
                "warning: serving.insecure: any program that reaches %s can feed this run",
                self.address,
            )
        return self.address

    def finish(self, reason: str, *, grace_seconds: float = 2.0) -> None:
        """Tells every env server that training is over, and stops serving.

        Also those that are not connected just now, because all slots are leased, for example.
        """
        self._finish_reason = reason
        if time.monotonic() - self._last_end < _RETURN_SECONDS:
            self.hub.close(None)  # the others need not wait
            self._stopping.wait(_RETURN_SECONDS)
        self._stop(None, grace_seconds)

    def stop(self, *, grace_seconds: float = 1.0) -> None:
        """Stops serving; env servers keep trying to return."""
        self._stop(unavailable("the learner is stopping; come back later"), grace_seconds)

    def _stop(self, end: EndError | None, grace_seconds: float) -> None:
        # Every connection first: its call's thread sends how it ends.
        self.hub.close(end)
        if self._server is not None:
            # It cancels all calls that are open by then, also of peers that do not read.
            self._server.stop(grace_seconds).wait(grace_seconds + GRACE_SECONDS)
            self._lock.close()
        self._stopping.set()
        self._watch.stop(GRACE_SECONDS)
        self._links.stop()

    def _connect(
        self, requests: Iterator[learner_end.Received], context: grpc.ServicerContext
    ) -> Iterator[learner_end.Answer]:
        """One call, in a thread of the pool."""
        if self._finish_reason is not None:
            yield _finish(self._finish_reason)
            return
        outbox: queue.SimpleQueue[learner_end.Answer | Exception | None] = queue.SimpleQueue()
        connection = Connection(
            self.hub,
            host_of(context.peer()),
            outbox,
            self._longest,
            self._config.step_deadline_seconds,
            connect_link=self._connect_link,
        )
        self._calls[connection] = context  # from here on the watch sees it
        reading = (requests, self._links.add)
        reader = threading.Thread(target=connection.read, args=reading, name="reader", daemon=True)
        try:
            # The client may end the call while this thread waits at the outbox. If it has done so
            # already, gRPC does not call back: then the reader finds the end.
            context.add_callback(connection.end)
            reader.start()
            while (item := outbox.get()) is not None:
                if isinstance(item, EndError):
                    if self._finish_reason is not None:
                        break  # its Hello came too late: there is no later learner to return to
                    context.abort(item.code, item.details)
                assert not isinstance(item, Exception), item
                yield item
            if self._finish_reason is not None:
                yield _finish(self._finish_reason)
        finally:
            connection.end()
            self._last_end = time.monotonic()
            # Last: until then the watch can cancel a call whose peer does not read.
            del self._calls[connection]

    def _look(self) -> None:
        """Looks once at all calls; the watch's loop body."""
        # A silent stream must not hold a call, or the slots that Hello reserves, without end.
        self._stopping.wait(POLL_SECONDS)
        now = time.monotonic()
        for connection, context in self._calls.copy().items():
            if has_ended := connection.has_ended:
                limit, what = GRACE_SECONDS, ""
            elif not connection.has_said_hello:
                limit, what = HELLO_SECONDS, "hello"
            elif not connection.is_ready:
                limit = self._config.ready_deadline_seconds
                what = "ready after hello (serving.ready_deadline_seconds)"
            else:
                continue
            if now - connection.since <= limit:
                continue
            if has_ended:
                # Its end stands behind what its peer does not read, and would do so without end.
                context.cancel()
            else:
                late = f"expected {what} within {limit:g} seconds"
                connection.close(EndError(grpc.StatusCode.UNAVAILABLE, late))


def _finish(reason: str) -> seedrl_pb2.FromLearner:
    return seedrl_pb2.FromLearner(finish=seedrl_pb2.Finish(reason=reason))


def message_limit(
    serving: ServingConfig, environment: EnvironmentConfig, spec: EnvSpec | None
) -> int:
    """Bytes of the longest message: as configured, or all slots together can need.

    A peer can make the learner hold that much, and two and a half times for a moment.
    `spec`: what environments look like, if a checkpoint has it.
    """
    if serving.max_message_bytes:
        return serving.max_message_bytes
    if spec is None:
        return _UNKNOWN_BYTES
    slots = serving.training_slots + serving.evaluation_slots
    steps = StepLayout(spec, slots, len(environment.metrics)).most_bytes
    # Of many numbers in a box, actions may be longer than observations.
    longest = max(steps, ActionLayout(spec.action, slots).num_bytes)
    most = min(int(longest * _SPARE_BYTES), contract.MOST_MESSAGE_BYTES)
    return max(contract.LEAST_MESSAGE_BYTES, most)


class LinkReader:
    """Brings to connections what arrives over their links. `add` may be called by any thread."""

    def __init__(self) -> None:
        # One thread for all: with one for each, acting would wait in line with all of them for the
        # interpreter, several times in a step.
        self._selector = selectors.DefaultSelector()
        self._worker = Worker("links", self._read)
        self._worker.start()

    def add(self, link: LearnerLink, connection: Connection) -> None:
        """Reads `link` until it or `connection` ends, then closes both."""
        try:
            # Epoll may be changed while the reader waits in it.
            self._selector.register(link, selectors.EVENT_READ, (link, connection))
        except ValueError:  # closed: by `stop`, while this env server was connecting
            connection.close()
            link.close()

    def stop(self) -> None:
        """Ends the thread, and the links and connections that are open. May be called twice."""
        if self._worker.stop(GRACE_SECONDS) and self._selector.get_map() is not None:
            for key in list(self._selector.get_map().values()):
                self._drop(*key.data)
            self._selector.close()

    def _read(self) -> None:
        # The timeout is for `stop`: it is noticed that late if nothing arrives.
        for key, _ in self._selector.select(POLL_SECONDS):
            self._receive(*key.data)

    def _receive(self, link: LearnerLink, connection: Connection) -> None:
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

    def _drop(self, link: LearnerLink, connection: Connection) -> None:
        self._selector.unregister(link)
        try:
            connection.close()
        finally:
            link.close()
