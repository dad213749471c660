"""The two arms over one learner, whose learning thread, queue and updates are a run's own.

Central: env servers send steps, and the acting thread answers. Broadcast: actors send pages, which
go to learning as the acting thread's would, and are answered with the newest parameters.
"""

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, NamedTuple

import grpc
import jax
import numpy as np

from learner import build
from learner.extras.bench.system import Interval, System
from learner.processes.env_servers import socket_address
from learner.runtime.channel import FilledPages
from seedrl.config import Config
from seedrl.timing import POLL_SECONDS
from seedrl.wire.framing import ActionsPayload, encode_from_learner, step_message_bytes
from seedrl.wire.learner_payload import pack_actions
from seedrl.wire.payload import StepLayout
from tests.benchmarks.broadcast.actor import END, EXCHANGE, OPTIONS, Actors, packed, unpacked
from tests.benchmarks.broadcast.workload import GROUP_ENVS, NUM_ENVS, NUM_SERVERS, PAGE_STEPS


class Measured(NamedTuple):
    """An arm in a cell."""

    steps_per_second: float
    cpu_seconds: float  # of a step, of all processes
    bytes_up: float  # of a step, to the learner; without headers of gRPC and below
    bytes_down: float
    lag_updates: float  # of the parameters that acted, when a time step is learned from

    @classmethod
    def of(cls, interval: Interval, bytes_up: float, bytes_down: float) -> "Measured":
        lag = interval.metrics["policy_lag_updates"]
        cost = interval.processor_seconds / interval.steps
        return cls(interval.steps / interval.seconds, cost, bytes_up, bytes_down, lag)


def measure_central(system: System, seconds: float) -> Measured:
    step = step_message_bytes(StepLayout(system.parts.spec, GROUP_ENVS).num_bytes)
    actions = ActionsPayload(pack_actions(0, 0, np.zeros(GROUP_ENVS, np.int32)))
    interval = system.run(seconds, by_updates=True)
    answer = len(encode_from_learner(actions))
    return Measured.of(interval, step / GROUP_ENVS, answer / GROUP_ENVS)


class Rollouts:
    """The learner's end of the broadcast arm. Owns a gRPC server, whose threads bring the pages.

    Actors wait for their answers except while it is open.
    """

    def __init__(self, parts: build.System, address: str) -> None:
        self._parts, self._channel = parts, parts.channel
        self._is_open, self._is_over = threading.Event(), False
        self._lock = threading.Lock()  # of the counts: each actor has a thread here
        self._learned = threading.Condition()  # on which actors wait that are ahead
        self._channel.wake_acting = self._wake
        self._newest, self._num_bytes = (0, b""), np.zeros(2)
        shapes = jax.tree.map(lambda x: np.empty((NUM_ENVS, *x.shape), x.dtype), parts.page)
        self._request = np.zeros(2, np.int64), shapes
        method: Any = grpc.unary_unary_rpc_method_handler(self._exchange)
        service, name = EXCHANGE[1:].split("/")
        handler = grpc.method_handlers_generic_handler(service, {name: method})
        self._server = grpc.server(ThreadPoolExecutor(NUM_SERVERS), options=OPTIONS)
        self._server.add_generic_rpc_handlers((handler,))
        self._server.add_insecure_port(address)
        self._server.start()

    def measure(self, learning: System, seconds: float) -> Measured:
        """Runs the learning thread, with the actors."""
        self._publish()
        self._channel.on_published = self._publish
        self._is_open.set()
        acting = self._parts.acting[0]
        before, steps = self._num_bytes.copy(), acting.training_steps
        interval = learning.run(seconds, by_updates=True)
        up, down = (self._num_bytes - before) / (acting.training_steps - steps)
        self._is_open.clear()
        self._channel.on_published = lambda: None
        return Measured.of(interval, float(up), float(down))

    def end(self) -> None:
        """Answers each actor that its play is over."""
        self._is_over = True
        self._is_open.set()

    def stop(self) -> None:
        self._server.stop(0.0).wait()

    def _publish(self) -> None:
        (newest,) = self._channel.params
        version = np.array([newest.version])
        self._newest = newest.version, packed(newest.params, version)

    def _wake(self) -> None:
        with self._learned:
            self._learned.notify_all()

    def _exchange(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        self._is_open.wait()
        if self._is_over:
            return END
        (number, version), pages = unpacked(request, self._request)
        slots = range(number * NUM_ENVS, (number + 1) * NUM_ENVS)
        with self._lock:
            self._parts.acting[0].totals.steps[0] += NUM_ENVS * PAGE_STEPS
        self._channel.limiter.acted(NUM_ENVS * PAGE_STEPS, NUM_ENVS)
        item = FilledPages(pages, slots, slots, (), [int(version)] * NUM_ENVS)
        while not self._channel.pages.put(item, POLL_SECONDS):
            pass
        with self._learned:
            while not self._channel.limiter.may_act() and not self._is_over:
                self._learned.wait(POLL_SECONDS)
        newest, params = self._newest
        answer = params if newest > version else b""
        with self._lock:
            self._num_bytes += len(request), len(answer)
        return answer


@contextlib.contextmanager
def playing(parts: build.System, actors: Actors, *, acts: bool = True) -> Iterator[Rollouts]:
    """Actors that were made, and have the learner for their rollouts."""
    with socket_address() as address:
        rollouts = Rollouts(parts, address)
        played = actors.play(1e9, address, acts)
        try:
            yield rollouts
        finally:
            rollouts.end()
            for each in played:  # first: one may be about to send its last pages
                each.result()
            rollouts.stop()


def learning_of(system: System, actors: Actors) -> System:
    """The learning thread of a system, with actors in place of its env servers."""
    learning = System(Config(environment=None, agent=None))  # type: ignore[arg-type]
    learning.parts, learning.metrics = system.parts, system.metrics
    learning.bodies = {"learning": system.bodies["learning"]}
    # Of the fleet only the processes count, whose processor time an interval has.
    served: Any = SimpleNamespace(env_server_pids=lambda: actors.pids)
    learning.served = served
    return learning
