"""One env server's connection: what its messages mean, and in which order they may arrive."""

import logging
from collections.abc import Callable
from typing import Protocol

import grpc

from learner.serving.core import PlaybackError, ProtocolError
from learner.serving.hub import Hub
from learner.serving.leases import CutStreamError, Lease, NoFreeSlotError
from learner.serving.ledger import SentSteps
from seedrl.specs import EnvSpec
from seedrl.wire import seedrl_pb2, version
from seedrl.wire.channel import Answer, Received
from seedrl.wire.framing import (
    ActionsPayload,
    StepPayload,
    WireError,
    encode_from_learner,
)
from seedrl.wire.link import Link
from seedrl.wire.payload import StepLayout, read_header

_logger = logging.getLogger(__name__)


class EndError(Exception):
    """Ends one stream with a status that its env server understands; the text is one line.

    `is_reported`: the learner's user hears of it in another way, or need not.
    """

    def __init__(self, code: grpc.StatusCode, details: str, *, is_reported: bool = False):
        super().__init__(details)
        self.code = code
        self.details = details
        self.is_reported = is_reported


class Outbox(Protocol):
    """Takes what is to be sent; from any thread."""

    def put(self, item: Answer | EndError | None, /) -> None:
        """Queues it behind what was put before."""
        ...


class Connection:
    """The learner's end of one connection. Only the thread that gives it messages calls `receive`.

    Attributes:
      outbox: what is to be sent over gRPC, a EndError to end with, or None: end quietly.
      link: what all but the handshake and the end takes, if the env server can be reached so. Then
        what comes over it has to be given to `receive`.
      is_ready: whether the handshake is over.
    """

    def __init__(
        self,
        hub: Hub,
        peer: str,
        outbox: Outbox,
        connect_link: Callable[[str], Link | None] = lambda _: None,
    ):
        """`connect_link` gives the link of a name, if it can be reached."""
        self.peer = peer
        self.outbox = outbox
        self.is_ready = False
        self._hub = hub
        self._connect_link = connect_link
        self.link: Link | None = None
        self._lease: Lease | None = None
        self._layouts: list[StepLayout] = []
        self._expected: tuple[str, ...] = ("hello",)

    def hang_up(self) -> None:
        """The transport is gone: nothing can be sent any more, and nothing should come."""
        self.outbox.put(None)
        if self.link is not None:
            self.link.end()

    def receive(self, message: Received) -> bool:
        """Handles one message; False if it has ended the stream."""
        try:
            self._handle(message)
        except Exception as error:
            self.fail(error)
            return False
        return True

    def fail(self, error: Exception) -> None:
        """Ends the stream because of `error`: its env server's fault, or ours."""
        self.close(self._verdict(error))

    def _verdict(self, error: Exception) -> EndError:
        """How the stream ends after `error`."""
        if isinstance(error, EndError):
            return error
        if isinstance(error, ProtocolError | WireError):
            return EndError(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        # The text of an unexpected exception could hold anything: it stays in our own log.
        _logger.error("reading from env server %s failed", self.peer, exc_info=error)
        return EndError(grpc.StatusCode.INTERNAL, "internal error; see the learner's log")

    def _handle(self, message: Received) -> None:
        if isinstance(message, WireError):
            raise message
        if isinstance(message, StepPayload):
            self._require("step")
            self._step(message)
            return
        kind = message.WhichOneof("content")
        self._require(kind or "an empty message")
        if kind == "hello":
            self._hello(message.hello)
        elif kind == "ready":
            self._ready(message.ready)
        else:
            self._refusal(message.refusal)

    def _require(self, kind: str) -> None:
        if kind not in self._expected:
            raise ProtocolError(f"expected {' or '.join(self._expected)}, got {kind}")

    def _hello(self, hello: seedrl_pb2.Hello) -> None:
        self.peer = f"{hello.host}:{hello.pid}"
        if hello.major != version.MAJOR:
            raise EndError(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"expected wire version {version.MAJOR}.x, got {hello.major}.{hello.minor}; "
                "install the same seedrl on both sides",
            )
        if hello.num_envs < 1:
            raise ProtocolError("expected num_envs >= 1, got 0")
        with self._hub.changed:
            if not self._hub.is_open:
                raise EndError(
                    grpc.StatusCode.UNAVAILABLE, "the learner is stopping", is_reported=True
                )
            # An env server that has come back before we noticed that it was gone: its old slots
            # must be free now.
            for key in {sent.lease for sent in hello.sent}:
                self._hub.end_superseded(key)
            try:
                self._lease = self._hub.serving.lease(
                    hello.num_envs,
                    hello.num_groups,
                    self.peer,
                    plays_recording=hello.plays_recording,
                )
            except NoFreeSlotError as error:
                raise EndError(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error)) from error
            except (CutStreamError, PlaybackError) as error:
                raise EndError(grpc.StatusCode.FAILED_PRECONDITION, str(error)) from error
            self._hub.serving.report(
                SentSteps(sent.lease, sent.group, sent.num_envs, sent.steps, sent.answered)
                for sent in hello.sent
            )
            self._hub.streams[self._lease.number] = self
            self.link = self._connect_link(hello.link)
            assign = self._assign(self._lease)
        self._expected = ("ready", "refusal")
        self.outbox.put(seedrl_pb2.FromLearner(assign=assign))

    def _assign(self, lease: Lease) -> seedrl_pb2.Assign:
        config = self._hub.environment
        return seedrl_pb2.Assign(
            lease=lease.key,
            linked=self.link is not None,
            environment=seedrl_pb2.Environment(
                id=config.id,
                arguments=config.arguments,
                wrappers=config.wrappers,
                vectorization=config.vectorization,
            ),
            groups=[
                seedrl_pb2.Group(
                    slots=group.slots.tolist(),
                    seeds=self._hub.serving.seeds(group),
                    evaluation=group.evaluation,
                    first_row=lease.played_from or 0,
                )
                for group in lease.groups
            ],
        )

    def _ready(self, ready: seedrl_pb2.Ready) -> None:
        try:
            spec = EnvSpec.from_json(ready.spec)
        except ValueError as error:
            raise ProtocolError(str(error)) from error
        with self._hub.changed:
            difference = self._hub.agree(spec, self.peer)
            # Until there is agreement, whoever waits for it raises the refusal.
            is_reported = not self._hub.is_agreed
        if difference:
            raise EndError(
                grpc.StatusCode.FAILED_PRECONDITION,
                "this environment differs from the one that the learner trains on: "
                + "; ".join(difference),
                is_reported=is_reported,
            )
        assert self._lease is not None
        self._layouts = [StepLayout(spec, len(group.slots)) for group in self._lease.groups]
        self._expected = ("step",)
        self.is_ready = True
        _logger.info("env server %s is ready", self.peer)

    def _refusal(self, refusal: seedrl_pb2.Refusal) -> None:
        with self._hub.changed:
            is_reported = not self._hub.is_agreed
            self._hub.refuse(f"env server {self.peer} refuses: {refusal.reason}")
        raise EndError(grpc.StatusCode.FAILED_PRECONDITION, refusal.reason, is_reported=is_reported)

    def _step(self, message: StepPayload) -> None:
        assert self._lease is not None
        header = read_header(message.data)
        if header.group >= len(self._layouts):
            raise ProtocolError(f"expected group < {len(self._layouts)}, got {header.group}")
        group = self._lease.groups[header.group]
        try:
            timestep = self._layouts[header.group].unpack(message.data)
        except WireError:
            with self._hub.changed:
                self._hub.serving.reject(group, header.sequence)
            raise
        now = self._hub.clock()
        with self._hub.changed:
            self._hub.serving.step(group, header, timestep, now)
            self._hub.changed.notify_all()

    @property
    def num_missing(self) -> int:
        """Slots that the env server has asked for in vain."""
        return 0 if self._lease is None else self._lease.num_missing

    def close_for_more(self) -> None:
        """Ends the stream because there are slots for a larger lease now."""
        self.close(EndError(grpc.StatusCode.UNAVAILABLE, "more slots are free", is_reported=True))

    def holds(self, key: int) -> bool:
        """Whether this stream's lease has that key."""
        return self._lease is not None and self._lease.key == key

    def close(self, end: EndError | None = None) -> None:
        """Ends the lease, which cuts the streams of experience, and then the stream itself."""
        if self._lease is not None:
            with self._hub.changed:
                if self._hub.streams.pop(self._lease.number, None) is not None:
                    self._hub.serving.end(self._lease)
                    # What is played from a recording may go on under a later lease.
                    if self._lease.played_from is None:
                        for group in self._lease.groups:
                            self._hub.ended.extend(map(int, group.streams))
                    self._hub.changed.notify_all()
                    self._hub.make_room()
        self.outbox.put(end)
        if self.link is not None:
            self.link.end()

    def send_actions(self, payload: bytes) -> None:
        """Sends actions, or queues them for gRPC. Called by the acting thread."""
        actions = ActionsPayload(payload)
        if self.link is None:
            self.outbox.put(actions)
        elif not self.link.send_at_once(encode_from_learner(actions)):
            reason = "the env server is gone, or does not read its answers"
            self.close(EndError(grpc.StatusCode.UNAVAILABLE, reason, is_reported=True))
