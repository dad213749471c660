"""One env server's connection: what its messages mean, in which order they may come."""

import logging
import queue
import threading
from collections.abc import Callable, Iterable

import grpc

from learner.serving import ProtocolError, Serving
from learner.slots import Lease, NoFreeSlotError
from seedrl.config import EnvironmentConfig
from seedrl.specs import EnvSpec
from seedrl.wire import seedrl_pb2, version
from seedrl.wire.channel import Answer, Received
from seedrl.wire.framing import ActionsPayload, StepPayload, WireError
from seedrl.wire.payload import StepLayout, read_header

_logger = logging.getLogger(__name__)


class StreamError(Exception):
    """Ends one stream with a status that its env server understands; the text is one line.

    `is_told`: the learner's user hears of it in another way, or need not.
    """

    def __init__(self, code: grpc.StatusCode, details: str, *, is_told: bool = False):
        super().__init__(details)
        self.code = code
        self.details = details
        self.is_told = is_told


class Lobby:
    """What all streams share: the serving core, its lock, and what is known of the environments.

    Attributes:
      changed: guards everything here and the serving core; notified at every change.
      serving: the core.
      environment: what env servers are told to build.
      spec: what it looks like: given (from a checkpoint), or taken from the first Ready.
      refusal: why the first env server that refused could not build it.
      streams: open streams by the number of their lease.
      ended: streams of experience that were cut and not yet reported.
      is_open: False once the learner is stopping.
    """

    def __init__(self, serving: Serving, environment: EnvironmentConfig, spec: EnvSpec | None):
        self.changed = threading.Condition()
        self.serving = serving
        self.environment = environment
        self.spec = spec
        self.refusal: str | None = None
        self.streams: dict[int, Stream] = {}
        self.ended: list[int] = []
        self.is_open = True


class Stream:
    """The learner's end of one stream. Its reader thread calls `read`; its gRPC thread `answers`.

    The reader thread alone owns `_expected`, `_lease` and `_layouts`; `outbox` connects the two.
    """

    def __init__(self, lobby: Lobby, peer: str, clock: Callable[[], float]):
        self.peer = peer
        # What to send, a StreamError to end with, or None: end quietly.
        self.outbox: queue.SimpleQueue[Answer | StreamError | None] = queue.SimpleQueue()
        self.is_ready = threading.Event()
        self._lobby = lobby
        self._clock = clock
        self._lease: Lease | None = None
        self._layouts: list[StepLayout] = []
        self._expected: tuple[str, ...] = ("hello",)

    def read(self, requests: Iterable[Received]) -> None:
        """Handles messages until the stream ends; whatever ends it, the lease ends too."""
        end: StreamError | None = None
        try:
            for message in requests:
                self._handle(message)
        except (ProtocolError, WireError) as error:
            end = StreamError(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except StreamError as error:
            end = error
        except grpc.RpcError:
            pass  # The peer is gone; there is nobody to tell.
        except Exception:
            # The text of an unexpected exception could hold anything: it stays in our own log.
            _logger.exception("reading from env server %s failed", self.peer)
            end = StreamError(grpc.StatusCode.INTERNAL, "internal error; see the learner's log")
        finally:
            self._close()
            self.outbox.put(end)

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
            raise StreamError(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"expected wire version {version.MAJOR}.x, got {hello.major}.{hello.minor}; "
                "install the same seedrl on both sides",
            )
        if hello.num_envs < 1:
            raise ProtocolError("expected num_envs >= 1, got 0")
        with self._lobby.changed:
            if not self._lobby.is_open:
                raise StreamError(
                    grpc.StatusCode.UNAVAILABLE, "the learner is stopping", is_told=True
                )
            try:
                self._lease = self._lobby.serving.lease(hello.num_envs, hello.num_groups, self.peer)
            except NoFreeSlotError as error:
                raise StreamError(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error)) from error
            self._lobby.streams[self._lease.number] = self
            assign = self._assign(self._lease)
        self._expected = ("ready", "refusal")
        self.outbox.put(seedrl_pb2.FromLearner(assign=assign))

    def _assign(self, lease: Lease) -> seedrl_pb2.Assign:
        config = self._lobby.environment
        return seedrl_pb2.Assign(
            environment=seedrl_pb2.Environment(
                id=config.id,
                arguments=config.arguments,
                wrappers=config.wrappers,
                vectorization=config.vectorization,
            ),
            groups=[
                seedrl_pb2.Group(
                    slots=group.slots.tolist(),
                    seeds=self._lobby.serving.slots.seeds(group),
                    evaluation=group.evaluation,
                )
                for group in lease.groups
            ],
        )

    def _ready(self, ready: seedrl_pb2.Ready) -> None:
        try:
            spec = EnvSpec.from_json(ready.spec)
        except ValueError as error:
            raise ProtocolError(str(error)) from error
        with self._lobby.changed:
            self._lobby.spec = self._lobby.spec or spec
            difference = self._lobby.spec.difference(spec)
            self._lobby.changed.notify_all()
        if difference:
            raise StreamError(
                grpc.StatusCode.FAILED_PRECONDITION,
                "this environment differs from the one that the learner trains on: "
                + "; ".join(difference),
            )
        assert self._lease is not None
        self._layouts = [StepLayout(spec, len(group.slots)) for group in self._lease.groups]
        self._expected = ("step",)
        self.is_ready.set()
        _logger.info("env server %s is ready", self.peer)

    def _refusal(self, refusal: seedrl_pb2.Refusal) -> None:
        with self._lobby.changed:
            # Until there is a spec, whoever waits for it raises the refusal.
            is_told = self._lobby.spec is None
            self._lobby.refusal = f"env server {self.peer} refuses: {refusal.reason}"
            self._lobby.changed.notify_all()
        raise StreamError(grpc.StatusCode.FAILED_PRECONDITION, refusal.reason, is_told=is_told)

    def _step(self, message: StepPayload) -> None:
        assert self._lease is not None
        header = read_header(message.data)
        if header.group >= len(self._layouts):
            raise ProtocolError(f"expected group < {len(self._layouts)}, got {header.group}")
        timestep = self._layouts[header.group].unpack(message.data)
        group = self._lease.groups[header.group]
        now = self._clock()
        with self._lobby.changed:
            self._lobby.serving.step(group, header, timestep, now)
            self._lobby.changed.notify_all()

    def _close(self) -> None:
        if self._lease is None:
            return
        with self._lobby.changed:
            self._lobby.streams.pop(self._lease.number, None)
            self._lobby.serving.end(self._lease)
            for group in self._lease.groups:
                self._lobby.ended.extend(map(int, group.streams))
            self._lobby.changed.notify_all()

    def send_actions(self, payload: bytes) -> None:
        """Queues actions to be sent. Called by the acting thread."""
        self.outbox.put(ActionsPayload(payload))
