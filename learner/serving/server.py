"""The gRPC service: carries messages between env servers and the hub."""

import asyncio
import contextlib
import functools
import logging
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import grpc

from learner.serving.access.entry import MOST_WAITING, Entry
from learner.serving.access.health import health_handler
from learner.serving.access.tcp_connection import cut, host_of
from learner.serving.address_lock import AddressLock
from learner.serving.connection import Connection
from learner.serving.handshake.deadlines import MOST_SILENT, Handshakes
from learner.serving.handshake.message_limit import message_limit
from learner.serving.handshake.signs_of_life import SignsOfLife
from learner.serving.hub import Hub
from learner.serving.link_reader import LinkReader
from learner.serving.peer import EndError
from learner.threads.loop_outbox import DirectOutbox, LoopOutbox, LoopWaker
from seedrl.config import ServingConfig
from seedrl.errors import AddressInUseError
from seedrl.wire import channel, seedrl_pb2
from seedrl.wire.credentials import Certificates
from seedrl.wire.env_server_connection import EnvServerConnection
from seedrl.wire.framing import ActionsPayload
from seedrl.wire.local_link import connect_link

# For connections to end on request.
_END_SECONDS = 1.0
# For a peer to take what its connection ends with: who does not read is cut off.
_TAKE_END_SECONDS = 5.0
# To the first warning of an address that anybody may use, and between two.
_FIRST_WARNING_SECONDS = 0.5
_WARNING_SECONDS = 60.0

_logger = logging.getLogger(__name__)

_Item = channel.Answer | Exception | None
Result = TypeVar("Result")


def _certificates(config: ServingConfig) -> tuple[str, str, str]:
    return config.certificate, config.private_key, config.authority


def _is_actions(item: _Item) -> bool:
    return isinstance(item, ActionsPayload)


def _is_news(record: logging.LogRecord) -> bool:
    """Whether a line of gRPC's says what is not said anyway.

    If an env server vanishes just before it is answered, gRPC logs its core's error with all of its
    traceback; that the env server has left is an event.
    """
    if not record.exc_info:
        return True
    # By name: gRPC does not export it, and other errors of its core are defects.
    return type(record.exc_info[1]).__name__ != "ExecuteBatchError"


class Service:
    """Brings env servers to a hub. Owns the gRPC server; may be called from any thread.

    One thread, an event loop's, for all connections: with one for each, acting would stand in line
    with all of them for the interpreter, several times in a step.
    """

    def __init__(
        self, hub: Hub, config: ServingConfig, *, after_breach: Callable[[], None] = lambda: None
    ):
        """Raises ConfigError if the files of token or certificates cannot be used.

        `after_breach` gives back what an env server that breaks the contract may have left behind.
        """
        self.address = config.bind
        self.hub = hub
        self._config = config
        self._finish_reason: str | None = None
        self._lock: AddressLock | None = None
        self._credentials = Certificates(
            *(Path(path) if path else None for path in _certificates(config))
        ).of_server()
        self._links = LinkReader()
        self._longest = message_limit(config, hub.environment, hub.spec)
        self._connect_link = functools.partial(connect_link, max_message_bytes=self._longest)
        self._loop = asyncio.new_event_loop()
        self._waker = LoopWaker(self._loop)
        # Not in the loop's thread: it may take milliseconds.
        clean_up = functools.partial(self._loop.run_in_executor, None, after_breach)
        self._entry = Entry(hub, config, self._call_later, self._loop.time, clean_up)
        self._handshakes = Handshakes(
            self._call_later, self._loop.time, ready=config.ready_deadline_seconds
        )
        self._signs = SignsOfLife(self._call_later, self._loop.time)
        self._defect: BaseException | None = None
        self._thread = threading.Thread(target=self._loop.run_forever, name="service", daemon=True)
        self._server: grpc.aio.Server | None = None
        self._is_stopped = False

    def start(self) -> str:
        """Binds and serves; returns the address with its real port. Raises AddressInUseError."""
        self._lock = AddressLock(self.address)
        logging.getLogger("grpc._cython.cygrpc").addFilter(_is_news)
        self._thread.start()
        try:
            port = self._do(self._serve())
        except RuntimeError as error:
            self._lock.release()
            raise AddressInUseError(
                f"cannot serve on {self.address}: the address is in use or not of this machine; "
                "stop the other process or choose another serving.bind"
            ) from error
        if not self.address.startswith("unix:"):
            self.address = f"{self.address.rsplit(':', 1)[0]}:{port}"
        return self.address

    @property
    def failure(self) -> BaseException | None:
        """What one of its two threads has died of, or does not do any more; while it serves."""
        if self._server is not None and not self._is_stopped and not self._thread.is_alive():
            return RuntimeError("the event loop of all connections has ended")
        return self._defect or self._links.failure

    def finish(self, reason: str, *, grace_seconds: float = 2.0) -> None:
        """Tells every env server that training is over, and stops serving."""
        self._finish_reason = reason
        self._stop(None, grace_seconds)

    def stop(self, *, grace_seconds: float = 1.0) -> None:
        """Stops serving; env servers keep trying to return."""
        reason = "the learner is stopping; come back later"
        error = EndError(grpc.StatusCode.UNAVAILABLE, reason, is_reported=True)
        self._stop(error, grace_seconds)

    def _stop(self, end: EndError | None, grace_seconds: float) -> None:
        self._is_stopped = True
        self.hub.close(end)
        if self._thread.is_alive():
            with contextlib.suppress(TimeoutError):
                self._do(self._end(grace_seconds), grace_seconds + 2 * _END_SECONDS)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_END_SECONDS)
        if not self._thread.is_alive():
            self._loop.close()
        self._links.stop()
        if self._lock is not None:
            self._lock.release()

    def _call_later(self, seconds: float, work: Callable[[], None]) -> asyncio.TimerHandle:
        """Like the loop's, which would go on without whom `work` watches over if that fails."""

        def noted() -> None:
            try:
                work()
            except Exception as error:
                self._defect = self._defect or error
                raise

        return self._loop.call_later(seconds, noted)

    def _do(self, work: Coroutine[Any, Any, Result], timeout: float | None = None) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout)

    async def _serve(self) -> int:
        config = self._config
        self._server = grpc.aio.server(
            options=channel.server_options(self._longest),
            # One for each slot at most, those that say nothing, which end one another, and those
            # that came too fast and wait.
            maximum_concurrent_rpcs=config.training_slots
            + config.evaluation_slots
            + 2 * MOST_SILENT
            + MOST_WAITING,
        )
        handler = channel.learner_handler(self._connect, self._longest)
        self._server.add_generic_rpc_handlers(
            (handler, health_handler(self._entry.admit, self._on_end))
        )
        if self._credentials is None:
            port = self._server.add_insecure_port(self.address)
        else:
            port = self._server.add_secure_port(self.address, self._credentials)
        await self._server.start()
        self._signs.look()
        if config.insecure and not self.address.startswith("unix:"):
            self._call_later(_FIRST_WARNING_SECONDS, self._warn)
        return port

    def _warn(self) -> None:
        _logger.warning(
            "warning: serving.insecure: whoever reaches %s can feed this run", self.address
        )
        self._call_later(_WARNING_SECONDS, self._warn)

    async def _end(self, grace_seconds: float) -> None:
        if self._server is not None:
            await self._server.stop(grace_seconds)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            await asyncio.wait(others, timeout=_END_SECONDS)

    async def _connect(
        self,
        requests: AsyncIterator[channel.Received],
        context: "grpc.aio.ServicerContext[channel.Received, channel.Answer]",
    ) -> None:
        """One connection."""
        await self._entry.admit(context)
        outbox: LoopOutbox[_Item] = DirectOutbox(self._waker, context.write, _is_actions)
        transport = EnvServerConnection(outbox, self._connect_link, self._on_end(context))
        connection = Connection(
            self.hub,
            host_of(context.peer()),
            transport,
            self._longest,
            self._config.step_deadline_seconds,
        )
        reading = asyncio.create_task(transport.read(requests, connection, self._links.add))
        try:
            with self._handshakes.watched(connection), self._signs.watched(connection):
                await self._send(outbox, context)
        except EndError as error:
            self._entry.end(context, error)
            await context.abort(error.code, error.details)
        finally:
            connection.end()
            reading.cancel()

    def _on_end(self, context: "grpc.aio.ServicerContext[Any, Any]") -> Callable[[], None]:
        """What to call, in any thread, when the call that runs here ends: it is cut off later.

        Its end stands behind what its peer does not read, and would do so for ever. Over a Unix
        socket gRPC keeps the stream, but nothing of ours: that peer is this user, or let in by it.
        """
        call, peer = asyncio.current_task(), context.peer()

        def cut_off() -> None:
            if call is not None and not call.done():
                call.cancel()
                cut(peer)

        def wait() -> None:
            if call is not None and not call.done():
                timer = self._loop.call_later(_TAKE_END_SECONDS, cut_off)
                # Else each call would be kept for so long, however many there are a second.
                call.add_done_callback(lambda _: timer.cancel())

        def end() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(wait)

        return end

    async def _send(
        self,
        outbox: LoopOutbox[_Item],
        context: "grpc.aio.ServicerContext[channel.Received, channel.Answer]",
    ) -> None:
        while (item := await outbox.get()) is not None:
            if isinstance(item, Exception):
                raise item
            await context.write(item)
        if self._finish_reason is not None:
            finish = seedrl_pb2.Finish(reason=self._finish_reason)
            await context.write(seedrl_pb2.FromLearner(finish=finish))
