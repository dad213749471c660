"""A scripted env server for the real service over real gRPC, or over a link."""

import contextlib
import queue
from collections.abc import Iterator, Sequence
from typing import Any

import grpc
import numpy as np

from learner.serving.batching import free_running
from learner.serving.core import Batch, Serving
from learner.serving.hub import Hub
from learner.serving.leases import SlotTable
from learner.serving.server import Service
from seedrl.config import EnvironmentConfig, ServingConfig
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec
from seedrl.types import StepType, TimeStep
from seedrl.wire import channel, contract, seedrl_pb2
from seedrl.wire.framing import (
    StepPayload,
    ToLearner,
    encode_from_env_server,
    receive_from_learner,
)
from seedrl.wire.link import Link, listen
from seedrl.wire.payload import StepLayout
from seedrl.wire.spec import spec_message
from tests.packed import packed
from tests.patience import SECONDS
from tests.typed_call import connect_method

FIRST, MID, LAST = StepType
SPEC = EnvSpec({"a": ArraySpec((2,), "float32"), "b": ArraySpec((), "uint8")}, DiscreteSpec(3))
ENVIRONMENT = EnvironmentConfig(
    id="Some-v0", arguments='{"x": 1}', wrappers=("m:w",), vectorization="sync"
)


def hello(
    num_envs: int = 2,
    num_groups: int = 1,
    major: int = contract.MAJOR,
    sent: Sequence[seedrl_pb2.Sent] = (),
    minor: int = contract.MINOR,
) -> ToLearner:
    hello = seedrl_pb2.Hello(
        major=major,
        minor=minor,
        num_envs=num_envs,
        num_groups=num_groups,
        host="h",
        pid=7,
        sent=sent,
    )
    return seedrl_pb2.FromEnvServer(hello=hello)


def ready(spec: EnvSpec = SPEC) -> ToLearner:
    return seedrl_pb2.FromEnvServer(ready=seedrl_pb2.Ready(spec=spec_message(spec)))


class Client:
    """A scripted env server: sends what it is asked to, and reads what arrives."""

    offers_link = False

    def __init__(self, address: str, seconds: float = SECONDS):
        """`seconds`: how long its call may take."""
        self._listener = listen() if self.offers_link else None
        self._link: Link | None = None
        self._channel = channel.connect(address)
        self._outgoing: queue.SimpleQueue[ToLearner | None] = queue.SimpleQueue()
        # A daemon thread of gRPC waits in this iterator: None ends it.
        self.call: Any = connect_method(self._channel)(
            iter(self._outgoing.get, None), timeout=seconds, wait_for_ready=True
        )
        self._incoming = self._receive()
        self.groups: list[seedrl_pb2.Group] = []
        self.lease = 0  # its key

    def send(self, message: ToLearner) -> None:
        if self._link is not None:
            self._link.send(encode_from_env_server(message))
            return
        if self._listener is not None and isinstance(message, seedrl_pb2.FromEnvServer):
            message = _naming(self._listener.name, message)
        self._outgoing.put(message)

    def receive(self) -> Any:
        return next(self._incoming)

    def _receive(self) -> Iterator[Any]:
        for message in self.call:
            if isinstance(message, seedrl_pb2.FromLearner) and message.assign.groups:
                assert message.assign.linked == self.offers_link
                if self._listener is not None:
                    self._link = self._listener.accept()
            yield message
            if self._link is not None:
                yield from map(receive_from_learner, self._link.receive())

    def shake_hands(
        self,
        num_envs: int = 2,
        sent: Sequence[seedrl_pb2.Sent] = (),
    ) -> "Client":
        self.send(hello(num_envs, sent=sent))
        assign = self.receive().assign
        self.lease, self.groups = assign.lease, list(assign.groups)
        self.send(ready())
        return self

    def step(
        self,
        sequence: int,
        step_type: StepType,
        group: int = 0,
        mark: float = 0.0,
    ) -> None:
        size = len(self.groups[group].slots)
        leaves = [np.zeros((size, *leaf.shape), leaf.dtype) for _, leaf in SPEC.leaves()]
        leaves[0][:] = mark
        timestep = TimeStep(
            np.full(size, step_type, np.uint8),
            np.zeros(size, np.float32),
            np.ones(size, np.float32),
            SPEC.unflatten(leaves),
        )
        self.send(StepPayload(packed(StepLayout(SPEC, size), group, sequence, timestep)))

    def end(self) -> tuple[grpc.StatusCode, str]:
        """How the learner ended the stream; nothing more may arrive before that."""
        try:
            message = next(self._incoming, None)
        except grpc.RpcError:
            message = None
        assert message is None, message
        return self.call.code(), self.call.details()

    def leave(self) -> None:
        self._outgoing.put(None)
        self.call.cancel()
        self._channel.close()
        for resource in (self._listener, self._link):
            if resource is not None:
                resource.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *error: object) -> None:
        self.leave()


def _naming(link: str, message: seedrl_pb2.FromEnvServer) -> seedrl_pb2.FromEnvServer:
    """The message, with the link if it is a Hello."""
    named = seedrl_pb2.FromEnvServer()
    named.CopyFrom(message)
    if message.WhichOneof("content") == "hello":
        named.hello.link = link
    return named


def service_at(
    bind: str,
    *,
    spec: EnvSpec | None = None,
    ready_deadline_seconds: float = 120.0,
) -> Service:
    slots = SlotTable(training=4, evaluation=2, seed=3)
    config = ServingConfig(
        training_slots=4,
        evaluation_slots=2,
        bind=bind,
        max_message_bytes=2**20,
        ready_deadline_seconds=ready_deadline_seconds,
    )
    serving = Serving(slots, page_steps=2, rule=free_running(0.005))
    return Service(Hub(serving, ENVIRONMENT, spec=spec), config)


@contextlib.contextmanager
def served(bind: str) -> Iterator[Service]:
    """A service that serves there."""
    service = service_at(bind)
    service.start()
    try:
        yield service
    finally:
        service.stop(grace_seconds=0.0)


def next_batch(service: Service) -> Batch:
    batch = service.hub.next_batch(["training"], timeout=SECONDS)
    assert batch is not None
    return batch


def wait_for(service: Service, is_reached: Any) -> None:
    assert service.hub.wait_until(is_reached, SECONDS)


def wait_until_free(service: Service, num_free: int) -> None:
    wait_for(service, lambda: service.hub._serving.slots.num_free == num_free)
