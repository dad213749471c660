"""The gRPC service: carries messages between env servers and the serving core."""

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np

from learner.address import AddressLock
from learner.serving import Batch, Serving
from learner.stream import Lobby, Stream, StreamError
from seedrl.config import EnvironmentConfig, ServingConfig
from seedrl.errors import AddressInUseError
from seedrl.specs import EnvSpec
from seedrl.wire import channel, seedrl_pb2
from seedrl.wire.payload import pack_actions

# From opening a stream to Ready. Building hundreds of environments takes its time.
_HANDSHAKE_SECONDS = 600.0

_logger = logging.getLogger(__name__)


class Service:
    """Serves env servers. Owns the gRPC server; its methods may be called from any thread."""

    def __init__(
        self,
        serving: Serving,
        environment: EnvironmentConfig,
        config: ServingConfig,
        *,
        spec: EnvSpec | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.address = config.bind
        self._lobby = Lobby(serving, environment, spec)
        self._clock = clock
        self._finish_reason: str | None = None
        self._is_woken = False  # guarded by lobby.changed
        self._lock: AddressLock | None = None
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

    def wait_for_spec(self, timeout: float) -> EnvSpec | None:
        """Waits for a first env server's spec; None if none came in time."""
        lobby = self._lobby
        with lobby.changed:
            lobby.changed.wait_for(lambda: lobby.spec is not None or lobby.refusal, timeout)
            return lobby.spec

    @property
    def refusal(self) -> str | None:
        """Why an env server could not build the environment; None if none has refused."""
        with self._lobby.changed:
            return self._lobby.refusal

    def wake(self) -> None:
        """Makes `next_batch` return, so that its caller looks again at what it allows.

        A call that comes before `next_batch` counts for the next one: none is lost.
        """
        with self._lobby.changed:
            self._is_woken = True
            self._lobby.changed.notify_all()

    def next_batch(
        self, *, is_training_allowed: bool, is_evaluation_allowed: bool, timeout: float
    ) -> Batch | None:
        """The next due batch of an allowed role; None if none was due in time, or after `wake`."""
        lobby, serving = self._lobby, self._lobby.serving
        roles = [False] * is_training_allowed + [True] * is_evaluation_allowed
        deadline = self._clock() + timeout
        with lobby.changed:
            while True:
                now = self._clock()
                waits = [(serving.seconds_until_due(now, evaluation=role), role) for role in roles]
                due = [role for wait, role in waits if wait == 0.0]
                if due:
                    # First come, first served: neither role starves the other.
                    role = min(due, key=lambda role: serving.oldest_arrival(evaluation=role))
                    return serving.take(evaluation=role)
                if now >= deadline or self._is_woken:
                    self._is_woken = False
                    return None
                soonest = min([deadline, *(now + wait for wait, _ in waits if wait is not None)])
                lobby.changed.wait(soonest - now)

    def answer(self, batch: Batch, actions: np.ndarray) -> None:
        """Sends `actions [B] int32` to whom they belong, and releases the batch's slots."""
        with self._lobby.changed:
            open_groups = set(map(id, self._lobby.serving.answered(batch)))
            streams = dict(self._lobby.streams)
        start = 0
        for item in batch.pending:
            group = item.group
            rows = actions[start : start + len(group.slots)]
            start += len(group.slots)
            stream = streams.get(group.lease.number)
            if stream is not None and id(group) in open_groups:
                stream.send_actions(pack_actions(group.number, item.sequence, rows))

    def take_ended(self) -> list[int]:
        """Streams of experience that were cut since the last call."""
        with self._lobby.changed:
            ended, self._lobby.ended = self._lobby.ended, []
            return ended

    def live_slots(self, *, evaluation: bool) -> np.ndarray:
        """Slots of this role whose stream is open, `[L] int32`, sorted."""
        with self._lobby.changed:
            return self._lobby.serving.live_slots(evaluation=evaluation)

    def ledger(self) -> dict[str, int]:
        """A copy of the serving core's counters."""
        with self._lobby.changed:
            return dict(self._lobby.serving.ledger)

    def epochs(self) -> list[int]:
        """Leases so far of each slot, for the checkpoint."""
        with self._lobby.changed:
            return [int(epoch) for epoch in self._lobby.serving.slots.epochs]

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
        with self._lobby.changed:
            self._lobby.is_open = False
            for stream in self._lobby.streams.values():
                stream.outbox.put(end)
            self._lobby.changed.notify_all()
        self._server.stop(grace_seconds).wait(grace_seconds + 1.0)
        if self._lock is not None:
            self._lock.release()

    def _connect(
        self, requests: Iterator[channel.Received], context: grpc.ServicerContext
    ) -> Iterator[channel.Answer]:
        """One stream, on its own gRPC thread."""
        stream = Stream(self._lobby, context.peer(), self._clock)
        context.add_callback(lambda: stream.outbox.put(None))
        threading.Thread(
            target=stream.read, args=(requests,), name=f"reader {stream.peer}", daemon=True
        ).start()
        try:
            yield from self._outgoing(stream)
        except StreamError as error:
            if not error.is_told:
                _logger.warning("env server %s: %s", stream.peer, error.details)
            context.abort(error.code, error.details)

    def _outgoing(self, stream: Stream) -> Iterator[channel.Answer]:
        deadline = self._clock() + _HANDSHAKE_SECONDS
        while True:
            timeout = None if stream.is_ready.is_set() else max(0.0, deadline - self._clock())
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
