"""One env server's connection: what its messages mean, and in which order they may arrive."""

import logging
from collections.abc import Sequence

import grpc
import numpy as np

from learner.serving.batcher import Pending
from learner.serving.core import PlaybackError, ProtocolError
from learner.serving.handshake.messages import assignment, columns_of, offer_of, spec_of
from learner.serving.handshake.signs_of_life import promised
from learner.serving.hub import Hub
from learner.serving.leases import CutStreamError, Lease, NoFreeSlotError
from learner.serving.peer import EndError
from seedrl.specs import EnvSpec
from seedrl.wire import seedrl_pb2
from seedrl.wire.channel import Received
from seedrl.wire.env_server_connection import EnvServerConnection
from seedrl.wire.framing import (
    StepPayload,
    WireError,
    step_message_bytes,
)
from seedrl.wire.payload import Buffer, StepLayout, sequence_of, split
from seedrl.wire.printable import printable
from seedrl.wire.values import ValueFaultError

_logger = logging.getLogger(__name__)


class Connection:
    """The learner's end of one connection: a state machine without a lock.

    Only the thread that gives it messages calls `receive`; the hub and others end it at any time.

    Attributes:
      peer: the env server's name in messages.
      transport: takes what is to be sent, and an EndError to end with.
      has_said_hello: whether the handshake has begun.
      is_ready: whether it is over.
      alive_seconds: how often its env server has promised to send something; 0 for no promise.
      has_heard: set by whatever arrives; whoever looks at it takes it back.
    """

    def __init__(
        self,
        hub: Hub,
        peer: str,
        transport: EnvServerConnection,
        max_message_bytes: int = 0,
        step_deadline_seconds: float = 0.0,
    ):
        """Args not named here are attributes.

        Args:
          max_message_bytes: the longest message that may be sent, either way, for the env server
            to know; 0 for any.
          step_deadline_seconds: the longest that a group may owe a step, for the env server to
            know; 0 for ever.
        """
        self.peer = peer
        self.transport = transport
        self.has_said_hello = False
        self.is_ready = False
        self.alive_seconds = 0.0
        self.has_heard = False
        self._hub = hub
        self._max_message_bytes = max_message_bytes
        self._step_deadline_seconds = step_deadline_seconds
        self._lease: Lease | None = None
        self._layouts: list[StepLayout] = []
        # Of an env server that has not sent a step yet; it may never do so.
        self._unproved_spec: EnvSpec | None = None
        # Where in the metrics of a LAST row those of `environment.metrics` are; -1 for nowhere.
        self._columns = np.zeros(0, np.int64)
        self._expected: tuple[str, ...] = ("hello",)

    def receive(self, message: Received) -> bool:
        """Handles one message; False if it has ended the connection."""
        self.has_heard = True
        try:
            self._handle(message)
        except Exception as error:
            self.fail(error)
            return False
        return True

    def hear(self) -> None:
        """Notes a sign of life."""
        self.has_heard = True

    def fail(self, error: Exception) -> None:
        """Ends the connection because of `error`: its env server's fault, or ours."""
        self.close(_verdict(error, self.peer))

    def close(self, error: EndError | None = None) -> None:
        """Ends the lease, which cuts the streams of experience, and with it the connection."""
        if self._lease is not None:
            self._hub.leave(self._lease, error)
        elif error is not None and not error.is_reported:
            self._hub.turn_away(self.peer, error)
        self.end(error)  # if it has no lease, or none any more

    def end(self, error: EndError | None = None) -> None:
        """Ends the transport, once; neither waits nor calls the hub, which may hold its lock."""
        self.transport.end(error)

    def send_actions(self, payloads: Sequence[bytes]) -> None:
        """Sends the actions of some groups, in one message if it may be so long.

        Called by the acting thread.
        """
        together = b"".join(payloads)
        is_too_long = 0 < self._max_message_bytes < step_message_bytes(len(together))
        for payload in payloads if is_too_long else [together]:
            if not self.transport.send_actions(memoryview(payload)):
                reason = "the env server is gone, or does not read its answers"
                self.close(EndError(grpc.StatusCode.UNAVAILABLE, reason, is_reported=True))
                return

    def _handle(self, message: Received) -> None:
        if isinstance(message, WireError):
            raise message
        if isinstance(message, StepPayload):
            self._require("step")
            self._step(message)
            return
        kind = message.WhichOneof("content")
        if kind == "failure" and self.is_ready:
            reason = printable(message.failure.reason)
            raise self._hub.fail(self._leased(), reason)
        self._require(kind or "an empty message")
        if kind == "hello":
            self._hello(message.hello)
        elif kind == "ready":
            self._ready(message.ready)
        else:
            reason = printable(message.refusal.reason) or "the env server refuses without a reason"
            raise EndError(grpc.StatusCode.FAILED_PRECONDITION, reason)

    def _leased(self) -> Lease:
        assert self._lease is not None, "what comes after Hello"
        return self._lease

    def _require(self, kind: str) -> None:
        if kind not in self._expected:
            raise ProtocolError(f"expected {' or '.join(self._expected)}, got {kind}")

    def _hello(self, hello: seedrl_pb2.Hello) -> None:
        self.peer = f"{printable(hello.host)}:{hello.pid}"
        self.has_said_hello = True
        admission = self._hub.admit(self, offer_of(self.peer, hello))
        self._lease = admission.lease
        self.alive_seconds = promised(hello.alive_seconds)
        self._expected = ("ready", "refusal")
        self.transport.hear(hello)
        assign = assignment(
            self._hub.environment,
            admission,
            max_message_bytes=self._max_message_bytes,
            step_deadline_seconds=self._step_deadline_seconds,
        )
        self.transport.put(seedrl_pb2.FromLearner(assign=assign))

    def _ready(self, ready: seedrl_pb2.Ready) -> None:
        spec = spec_of(ready)
        self._columns = columns_of(ready, self._hub.environment.metrics)
        self._hub.take_spec(self._leased(), spec, has_stepped=False)
        self._unproved_spec = spec
        self._layouts = [
            StepLayout(
                spec,
                len(group.slots),
                len(ready.metrics),
                self._hub.environment.max_abs_reward,
            )
            for group in self._leased().groups
        ]
        self._expected = ("step",)
        self.is_ready = True

    def _step(self, message: StepPayload) -> None:
        steps: list[Pending] = []
        try:
            for number, data in split(message, self._layouts):
                steps.append(self._read(number, data))
        finally:
            self._hub.deliver(steps)  # also those before one that cannot be read

    def _read(self, number: int, data: Buffer) -> Pending:
        group, layout = self._leased().groups[number], self._layouts[number]
        sequence = sequence_of(data)
        metrics: np.ndarray | tuple[()] = ()
        try:
            timestep = layout.unpack(data)
            if len(self._columns):
                metrics = _in_order(layout.metrics(data), self._columns)
            if self._unproved_spec is not None:
                self._hub.take_spec(self._leased(), self._unproved_spec, has_stepped=True)
                self._unproved_spec = None
        except (WireError, EndError) as error:
            self._hub.reject(group, sequence)
            if isinstance(error, EndError):
                raise
            where = f"{self._hub.environment.id}, group {group.number}: {error}"
            if isinstance(error, ValueFaultError) and error.is_absurd:
                # No breach: what is too much only this run's configuration says.
                raise self._hub.fail(self._leased(), where) from error
            raise WireError(where) from error
        return Pending(group, sequence, timestep, self._hub.clock(), metrics)


def _in_order(metrics: np.ndarray, columns: np.ndarray) -> np.ndarray:
    absent = np.full((len(metrics), 1), np.nan, np.float32)
    return np.concatenate([metrics, absent], axis=1)[:, columns]


def _verdict(error: Exception, peer: str) -> EndError:
    """How a connection ends after `error`: the env server's fault, or ours."""
    match error:
        case EndError():
            return error
        case ProtocolError() | WireError():
            return EndError(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        case NoFreeSlotError():
            return EndError(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        case CutStreamError() | PlaybackError():
            return EndError(grpc.StatusCode.FAILED_PRECONDITION, str(error))
    # The text of an unexpected exception could hold anything: it stays in our own log.
    _logger.error("reading from env server %s failed", peer, exc_info=error)
    return EndError(grpc.StatusCode.UNAVAILABLE, "internal error; see the learner's log")
