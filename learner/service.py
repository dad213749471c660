"""The gRPC service: carries messages between env servers and the lobby."""

import functools
import logging
import queue
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc

from learner.address import AddressLock
from learner.link_reader import LinkReader
from learner.lobby import Lobby
from learner.stream import Stream, StreamError
from seedrl.config import ServingConfig
from seedrl.errors import AddressInUseError
from seedrl.wire import channel, seedrl_pb2
from seedrl.wire.link import connect_link

# From opening a stream to Ready. Building hundreds of environments takes its time.
_HANDSHAKE_SECONDS = 600.0

_logger = logging.getLogger(__name__)


class Service:
    """Brings env servers to a lobby. Owns the gRPC server; may be called from any thread."""

    def __init__(
        self,
        lobby: Lobby,
        config: ServingConfig,
    ):
        self.address = config.bind
        self.lobby = lobby
        self._finish_reason: str | None = None
        self._lock: AddressLock | None = None
        self._links = LinkReader()
        self._connect_link = functools.partial(
            connect_link, max_message_bytes=config.max_message_bytes
        )
        # Streams that find no slot are refused at once; without spare threads they would hang.
        max_streams = config.training_slots + config.evaluation_slots + 8
        self._server = grpc.server(
            ThreadPoolExecutor(max_streams, thread_name_prefix="stream"),
            options=channel.server_options(config.max_message_bytes),
            maximum_concurrent_rpcs=max_streams,
        )
        self._server.add_generic_rpc_handlers((channel.learner_handler(self._connect),))

    def start(self) -> str:
        """Binds and serves; returns the address with its real port. Raises AddressInUseError."""
        self._lock = AddressLock(self.address)
        try:
            port = self._server.add_insecure_port(self.address)
        except RuntimeError as error:
            self._lock.release()
            raise AddressInUseError(
                f"cannot serve on {self.address}: the address is in use or not of this machine; "
                "stop the other process or choose another serving.bind"
            ) from error
        if not self.address.startswith("unix:"):
            self.address = f"{self.address.rsplit(':', 1)[0]}:{port}"
        self._server.start()
        return self.address

    def finish(self, reason: str, *, grace_seconds: float = 2.0) -> None:
        """Tells every env server that training is over, and stops serving."""
        self._finish_reason = reason
        self._stop(None, grace_seconds)

    def stop(self, *, grace_seconds: float = 1.0) -> None:
        """Stops serving; env servers keep trying to come back."""
        reason = "the learner is stopping; come back later"
        error = StreamError(grpc.StatusCode.UNAVAILABLE, reason, is_told=True)
        self._stop(error, grace_seconds)

    def _stop(self, end: StreamError | None, grace_seconds: float) -> None:
        self.lobby.close(end)
        self._server.stop(grace_seconds).wait(grace_seconds + 1.0)
        self._links.stop()
        if self._lock is not None:
            self._lock.release()

    def _connect(
        self, requests: Iterator[channel.Received], context: grpc.ServicerContext
    ) -> Iterator[channel.Answer]:
        """One stream, on its own gRPC thread."""
        stream = Stream(self.lobby, context.peer(), self._connect_link)
        context.add_callback(stream.hang_up)
        threading.Thread(
            target=self._read, args=(stream, requests), name=f"reader {stream.peer}", daemon=True
        ).start()
        try:
            yield from self._outgoing(stream)
        except StreamError as error:
            if not error.is_told:
                _logger.warning("env server %s: %s", stream.peer, error.details)
            context.abort(error.code, error.details)

    def _read(self, stream: Stream, requests: Iterator[channel.Received]) -> None:
        stream.read(requests)
        if stream.link is not None:
            self._links.add(stream.link, stream)

    def _outgoing(self, stream: Stream) -> Iterator[channel.Answer]:
        deadline = self.lobby.clock() + _HANDSHAKE_SECONDS
        while True:
            timeout = None if stream.is_ready.is_set() else max(0.0, deadline - self.lobby.clock())
            try:
                item = stream.outbox.get(timeout=timeout)
            except queue.Empty:
                if stream.is_ready.is_set():
                    continue
                raise StreamError(
                    grpc.StatusCode.DEADLINE_EXCEEDED,
                    f"expected ready within {_HANDSHAKE_SECONDS:.0f} seconds",
                ) from None
            if isinstance(item, StreamError):
                raise item
            if item is None:
                break
            yield item
        if self._finish_reason is not None:
            finish = seedrl_pb2.Finish(reason=self._finish_reason)
            yield seedrl_pb2.FromLearner(finish=finish)
