"""One env server's connection: the meaning of its messages, their order, and what carries them.

Everything may go over the gRPC stream. An env server of this host may offer a link in Hello: then
all but the handshake's Assign, Finish and the status go over that socket.
"""

import logging
import queue
import time
from collections.abc import Callable, Iterable, Sequence

import grpc
import numpy as np

from learner.serving.batching import Pending
from learner.serving.hub import EndError, Hub
from learner.serving.leases import Lease, NoFreeSlotError
from seedrl.config import EnvironmentConfig
from seedrl.wire import contract, seedrl_pb2
from seedrl.wire.contract import printable
from seedrl.wire.framing import (
    ActionsPayload,
    StepPayload,
    WireError,
    step_message_bytes,
)
from seedrl.wire.learner_end import Answer, LearnerLink, Received
from seedrl.wire.learner_payload import StepReader, sequence_of
from seedrl.wire.payload import Buffer, ValueFaultError, split
from seedrl.wire.spec import spec_of

_logger = logging.getLogger(__name__)

# Next to one for each group: a group sends no step before it has the answer to its last one.
_SPARE_ANSWERS = 2


class Connection:
    """The learner's end of one connection: a state machine.

    One thread at a time gives it messages: the stream's reader, from Assign on the links' reader if
    there is a link. The acting thread sends actions, and the hub and the service's watch may end it
    at any time. So nothing here has a lock: the queue and the link have their own, and what several
    threads write is a flag that only ever becomes true.
    """

    def __init__(
        self,
        hub: Hub,
        peer: str,
        outbox: "queue.SimpleQueue[Answer | Exception | None]",
        max_message_bytes: int = 0,
        step_deadline_seconds: float = 0.0,
        *,
        connect_link: Callable[[str], LearnerLink | str] = lambda _: "links are not used here",
    ):
        """Limits are for the env server to know, 0 for none.

        Args:
          peer: the env server's name in messages, until Hello has another.
          connect_link: gives the link of a name, or the reason why there is none.
        """
        self.peer = peer
        # All that goes over gRPC: messages, an EndError to end with, or None to end quietly. Any
        # thread puts, the thread of the call takes.
        self.outbox = outbox
        self.link: LearnerLink | None = None
        # Sends an actions payload from any thread, without waiting; False if it could not.
        self.send_payload: Callable[[ActionsPayload], bool] = self._queue_actions
        self.has_said_hello = self.is_ready = False  # how far the handshake is
        self.has_ended = False  # on this side
        # When the last of these changed. Set before it: the watch, which reads both, must not take
        # the new state with the old time, and end a call before its status is sent.
        self.since = time.monotonic()
        self._hub = hub
        self._max_message_bytes = max_message_bytes
        self._step_deadline_seconds = step_deadline_seconds
        self._connect_link = connect_link
        self._most_answers = _SPARE_ANSWERS
        self._lease: Lease | None = None
        self._layouts: list[StepReader] = []  # of the steps of each group
        # Where in the metrics of a LAST row those of `environment.metrics` are; -1 for nowhere.
        self._columns = np.zeros(0, np.int64)
        self._expected: tuple[str, ...] = ("hello",)

    def read(
        self, requests: Iterable[Received], watch: Callable[[LearnerLink, "Connection"], object]
    ) -> None:
        """Receives what arrives over gRPC until that ends; blocks.

        From Assign on, `watch` has to bring what arrives over the link, if one was taken.
        """
        try:
            for message in requests:
                if self.link is not None:
                    # Two threads would give this connection messages at once.
                    self.fail(WireError("expected all after Hello over the link"))
                    return
                is_open = self.receive(message)
                if self.link is not None:
                    watch(self.link, self)
                elif not is_open:
                    return
        except grpc.RpcError:
            pass  # the call was cancelled, or its connection is lost
        finally:
            # A linked env server may be done with gRPC before what it sent over the link is read.
            if self.link is None:
                self.close()

    def receive(self, message: Received) -> bool:
        """Handles one message; False if it has ended the connection."""
        try:
            self._handle(message)
        except Exception as error:
            self.fail(error)
            return False
        return True

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
        """Ends what carries it, once; neither waits nor calls the hub, which may hold its lock."""
        if self.has_ended:
            return
        self.since, self.has_ended = time.monotonic(), True
        self.outbox.put(error)
        if self.link is not None:
            self.link.end()

    def send_actions(self, payloads: Sequence[bytes]) -> None:
        """Sends the actions of some groups, in one message if it may be so long."""
        together = b"".join(payloads)
        is_too_long = 0 < self._max_message_bytes < step_message_bytes(len(together))
        for payload in payloads if is_too_long else [together]:
            if not self.send_payload(memoryview(payload)):
                reason = "the env server is gone, or does not read its answers"
                self.close(EndError(grpc.StatusCode.UNAVAILABLE, reason, is_reported=True))
                return

    def _queue_actions(self, payload: ActionsPayload) -> bool:
        if self.outbox.qsize() >= self._most_answers:
            return False  # the peer does not read, so that the thread of the call is stuck
        self.outbox.put(payload)
        return True

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
            raise WireError(f"expected {' or '.join(self._expected)}, got {kind}")

    def _hello(self, hello: seedrl_pb2.Hello) -> None:
        self.peer = f"{printable(hello.host)}:{hello.pid}"
        # From now on the deadline for Ready counts.
        self.since, self.has_said_hello = time.monotonic(), True
        if hello.major != contract.MAJOR:
            raise EndError(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"expected wire version {contract.MAJOR}.x, got {hello.major}.{hello.minor}; "
                "install the same seedrl on both sides",
            )
        if hello.num_envs < 1:
            raise WireError("expected num_envs >= 1, got 0")
        # From here on the hub may end this connection, from any thread.
        self._lease = self._hub.admit(self, self.peer, hello)
        self._expected = ("ready", "refusal")
        assign = assignment(
            self._hub.environment,
            self._lease,
            max_message_bytes=self._max_message_bytes,
            step_deadline_seconds=self._step_deadline_seconds,
        )
        self._most_answers = len(assign.groups) + _SPARE_ANSWERS
        self._take_link(hello.link, assign)
        self.outbox.put(seedrl_pb2.FromLearner(assign=assign))

    def _take_link(self, offered: str, assign: seedrl_pb2.Assign) -> None:
        # Takes the link that Hello offers, and writes into Assign whether it could.
        reached = self._connect_link(offered)
        if isinstance(reached, str):
            assign.unlinked_reason = reached
            return
        assign.linked = True
        self.link, self.send_payload = reached, reached.send_actions
        # This connection may have been ended meanwhile: `end` sets its flag before it looks for a
        # link, and here it is the other way round, so one of the two ends the link.
        if self.has_ended:
            reached.end()

    def _ready(self, ready: seedrl_pb2.Ready) -> None:
        try:
            spec = spec_of(ready.spec)
        except ValueError as error:
            raise WireError(str(error)) from error
        self._columns = columns_of(ready, self._hub.environment.metrics)
        # Made once: every step of a group has the same bytes.
        self._layouts = [
            StepReader(
                spec,
                len(group.slots),
                len(ready.metrics),
                self._hub.environment.max_abs_reward,
            )
            for group in self._leased().groups
        ]
        # Now: a step that is too long may come only when an episode ends, again and again.
        longest = max(step_message_bytes(layout.most_bytes) for layout in self._layouts)
        if 0 < self._max_message_bytes < longest:
            raise EndError(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"expected steps of at most {self._max_message_bytes} bytes, got {longest}; start "
                "more env servers with fewer environments each, or raise serving.max_message_bytes",
            )
        self._hub.ready(self._leased(), spec)
        self._expected = ("step",)
        self.is_ready = True

    def _step(self, message: StepPayload) -> None:
        steps: list[Pending] = []
        try:
            for number, data in split(message, self._layouts):
                steps.append(self._read(number, data))
        finally:
            # One call for all groups of a message: the hub's lock is taken once.
            self._hub.deliver(steps)  # also those before one that cannot be read

    def _read(self, number: int, data: Buffer) -> Pending:
        group, layout = self._leased().groups[number], self._layouts[number]
        sequence = sequence_of(data)
        metrics: np.ndarray | tuple[()] = ()
        try:
            timestep = layout.unpack(data)
            if len(self._columns):
                metrics = _in_order(layout.metrics(data), self._columns)
        except WireError as error:
            self._hub.reject(group)
            where = f"{self._hub.environment.id}, group {group.number}: {error}"
            if isinstance(error, ValueFaultError) and error.is_absurd:
                # No breach: only this run's configuration sets the limit.
                raise self._hub.fail(self._leased(), where) from error
            raise WireError(where) from error
        return Pending(group, sequence, timestep, self._hub.clock(), metrics)


def assignment(
    environment: EnvironmentConfig,
    lease: Lease,
    *,
    max_message_bytes: int,
    step_deadline_seconds: float,
) -> seedrl_pb2.Assign:
    """What an env server with this lease has to build and to keep to."""
    return seedrl_pb2.Assign(
        lease=lease.key,
        minor=contract.MINOR,
        max_message_bytes=max_message_bytes,
        step_deadline_seconds=step_deadline_seconds,
        environment=(
            seedrl_pb2.Environment(
                id=environment.id,
                arguments=environment.arguments,
                wrappers=environment.wrappers,
                vectorization=environment.vectorization,
                metrics=environment.metrics,
                max_abs_reward=environment.max_abs_reward,
                failures_per_hour=environment.failures_per_hour,
            )
        ),
        groups=[
            seedrl_pb2.Group(
                slots=group.slots.tolist(),
                seeds=group.seeds,
                evaluation=group.role == "evaluation",
            )
            for group in lease.groups
        ],
    )


def columns_of(ready: seedrl_pb2.Ready, wanted: Sequence[str]) -> np.ndarray:
    """Where in a row of metrics each of those that are `wanted` is; -1 if it is not in it.

    Raises WireError for others, and for one that is named twice.
    """
    # A name twice would leave a column without a meaning.
    names = list(ready.metrics)
    if len(set(names)) != len(names) or not set(names) <= set(wanted):
        raise WireError(f"expected metrics among {list(wanted)}, each once, in ready")
    return np.array([names.index(name) if name in names else -1 for name in wanted], int)


def _in_order(metrics: np.ndarray, columns: np.ndarray) -> np.ndarray:
    absent = np.full((len(metrics), 1), np.nan, np.float32)
    return np.concatenate([metrics, absent], axis=1)[:, columns]


def _verdict(error: Exception, peer: str) -> EndError:
    match error:
        case EndError():
            return error
        case WireError():
            return EndError(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        case NoFreeSlotError():
            return EndError(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
    # The text of an unexpected exception could hold anything: it stays in our own log.
    _logger.error("reading from env server %s failed", peer, exc_info=error)
    return EndError(grpc.StatusCode.UNAVAILABLE, "internal error; see the learner's log")
