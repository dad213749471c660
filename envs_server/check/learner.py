"""The learner's side of one stream, played message by message."""

import contextlib
import queue
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np

from seedrl.specs import BoxSpec, legal
from seedrl.types import StepType
from seedrl.wire import contract
from seedrl.wire.framing import ActionsPayload, StepPayload, WireError
from seedrl.wire.learner_end import learner_handler, server_options
from seedrl.wire.payload import Buffer, StepLayout, pack_actions, sequence_of, split
from seedrl.wire.seedrl_pb2 import Assign, FromLearner, Hello
from seedrl.wire.spec import spec_of

_MAX_MESSAGE_BYTES = 64 * 2**20
# Each open stream holds a thread; old ones end soon after the process that opened them.
_STREAMS = 16
_STEPS = "STEPS AND ACTIONS"


class BrokenError(Exception):
    """A rule was broken, and the dialogue cannot continue."""

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(text)
        self.rule = rule


def listen(leases: "queue.SimpleQueue[Lease]", patience_seconds: float) -> tuple[grpc.Server, str]:
    """A gRPC server that makes a lease of each stream that is opened, and its address."""

    # gRPC calls it in a thread of the stream's own, which only sends what the outbox gives it. All
    # else, reading included, is done by the checker's thread.
    def serve(received: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        lease = Lease(received, context, patience_seconds)
        leases.put(lease)
        return iter(lease.outbox.get, None)

    workers = ThreadPoolExecutor(_STREAMS, "played learner")
    server = grpc.server(workers, options=server_options(_MAX_MESSAGE_BYTES))
    server.add_generic_rpc_handlers((learner_handler(serve, _MAX_MESSAGE_BYTES),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, f"127.0.0.1:{port}"


class Lease:
    """A stream and its groups. Used by the checker's thread; what reads raises BrokenError.

    Attributes:
      outbox: of what gRPC's thread sends, until None.
      spec: of what was built.
      steps: the payloads of each group's steps so far.
    """

    def __init__(
        self, received: Iterator[Any], context: grpc.ServicerContext, patience_seconds: float
    ) -> None:
        self._received, self._context = received, context
        self._patience_seconds = patience_seconds
        self._random = np.random.default_rng(0)
        self.outbox = queue.SimpleQueue[Any]()
        # Wakes gRPC's thread when the env server leaves. It may have left already.
        if not context.add_callback(lambda: self.outbox.put(None)):
            self.outbox.put(None)

    def hello(self) -> Hello:
        """Reads the first message."""
        hello: Hello = self.receive("Hello")
        if hello.major != contract.MAJOR or hello.num_envs < 1:
            expected = f"expected major {contract.MAJOR} and num_envs of at least 1"
            raise BrokenError("Hello", f"{expected}, got {hello.major} and {hello.num_envs}")
        return hello

    def begin(self, fields: Mapping[str, Any]) -> None:
        """Sends Assign with these fields, reads Ready and the first steps."""
        assign = Assign(
            lease=2**63 + 1,  # more digits than a double has
            minor=contract.MINOR,
            unlinked_reason="seedrl check-env-server uses no local socket",
            step_deadline_seconds=self._patience_seconds,
            **{"max_message_bytes": _MAX_MESSAGE_BYTES, **fields},
        )
        self.send(FromLearner(assign=assign))
        try:
            self.spec = spec_of(self.receive("Ready").spec)
        except ValueError as error:
            raise BrokenError("Ready", str(error)) from error
        self.sizes = [len(group.slots) for group in assign.groups]
        self.steps: list[list[bytes]] = [[] for _ in self.sizes]
        self._layouts = [StepLayout(self.spec, size) for size in self.sizes]
        # Of each row, whether it has to be FIRST next.
        self._is_first = [np.ones(size, bool) for size in self.sizes]
        self._await_steps(range(len(self.sizes)))

    def receive(self, kind: str) -> Any:
        """The content of the next message, which is to be of this kind, a heading of the .proto."""
        start, patience_seconds = time.monotonic(), self._patience_seconds
        # Reading has no deadline of its own: it raises once the timer's thread cancels the stream.
        timer = threading.Timer(patience_seconds, self._context.cancel)
        timer.start()
        message = None
        with contextlib.suppress(Exception):  # the stream was cancelled, by whomever
            message = next(self._received, None)
        timer.cancel()
        if message is None:
            is_late = time.monotonic() - start >= patience_seconds
            got = f"nothing within {patience_seconds:g} seconds" if is_late else "its end"
            raise BrokenError("TIME LIMITS" if is_late else kind, f"expected {kind}, got {got}")
        if isinstance(message, WireError):
            raise BrokenError("MESSAGES", str(message))
        field = "" if isinstance(message, StepPayload) else message.WhichOneof("content")
        got = field.capitalize() or _STEPS
        content: Any = getattr(message, field) if field else message
        if got in ("Refusal", "Failure") and got != kind:
            raise BrokenError(got, f"expected {kind}, got {got}: {content.reason}")
        if got != kind:
            raise BrokenError(kind, f"expected {kind}, got {got}")
        return content

    def send(self, message: FromLearner | ActionsPayload) -> None:
        """Sends it."""
        self.outbox.put(message)

    def is_ended_by_peer(self) -> bool:
        """Waits for the end of the stream; steps may come before it."""
        try:
            while True:
                self.receive(_STEPS)
        except BrokenError as error:
            return error.rule == _STEPS

    def end(self, code: grpc.StatusCode, details: str = "") -> None:
        """Ends the stream."""
        # First the status, then the end of the outbox, at which gRPC's thread reads it.
        self._context.set_code(code)
        self._context.set_details(details or f"seedrl check-env-server tries {code.name}")
        self.outbox.put(None)

    def _random_actions(self, size: int) -> np.ndarray:
        action = self.spec.action
        shape = (size, *action.array.shape)
        if isinstance(action, BoxSpec):
            return self._random.uniform(-1, 1, shape).astype(np.float32)
        return self._random.integers(action.largest, size=shape, dtype=np.int32, endpoint=True)

    def answer(self, group: int, offset: int = 0) -> bytes:
        """Random actions that answer the step in flight, or one `offset` from it."""
        actions = self._random_actions(self.sizes[group])
        if self.spec.has_mask:
            step = self._layouts[group].unpack(self.steps[group][-1])
            actions = legal(actions, step.observation)
        return pack_actions(group, len(self.steps[group]) - 1 + offset, actions)

    def play(self, num_rounds: int, first_group: int = 0) -> None:
        """Answers all groups from one on, in one message, and awaits their steps, N times."""
        groups = range(first_group, len(self.sizes))
        for _ in range(num_rounds if groups else 0):
            self.send(memoryview(b"".join(self.answer(group) for group in groups)))
            self._await_steps(groups)

    def _await_steps(self, groups: range) -> None:
        due = set(groups)
        while due:
            try:
                for group, data in split(self.receive(_STEPS), self._layouts):
                    self._take(group, data, is_due=group in due)
                    due.remove(group)
            except WireError as error:
                raise BrokenError(_STEPS, str(error)) from error

    def _take(self, group: int, data: Buffer, *, is_due: bool) -> None:
        number, got = len(self.steps[group]), sequence_of(data)
        where = f"group {group}: expected step {number}"
        if not is_due or got != number:
            raise BrokenError(_STEPS, f"{where} after actions for the one before, got step {got}")
        step_type = self._layouts[group].unpack(data).step_type
        # FIRST at the beginning and after LAST, and nowhere else.
        for row in np.flatnonzero((step_type == StepType.FIRST) != self._is_first[group]):
            expected = "FIRST" if self._is_first[group][row] else "MID or LAST"
            got_type = StepType(step_type[row]).name
            raise BrokenError(_STEPS, f"{where} with {expected} in row {row}, got {got_type}")
        # What `unpack` gives are views of a buffer that gRPC may use again.
        self._is_first[group] = step_type == StepType.LAST
        self.steps[group].append(bytes(data))
