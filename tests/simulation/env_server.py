"""Simulated processes around the real env server: a process, and its connection to a learner."""

import functools
import queue
from collections.abc import Callable
from typing import TYPE_CHECKING

from envs_server.client import Lease
from envs_server.groups import seeds_of_reset
from envs_server.options import Options
from learner.serving.connection import Connection
from learner.serving.hub import EndError
from seedrl.specs import MOST_ACTIONS, BoxSpec, DiscreteSpec
from seedrl.wire.framing import (
    ActionsPayload,
    StepPayload,
    ToLearner,
    WireError,
    encode_from_env_server,
    encode_from_learner,
    receive_from_env_server,
    receive_from_learner,
)
from seedrl.wire.payload import ActionLayout, split
from seedrl.wire.seedrl_pb2 import Assign

if TYPE_CHECKING:
    from tests.simulation.world import World

# The learner closes a stream whose env server has not answered a ping for so long.
KEEPALIVE_SECONDS = 0.02
_LATENCY_SECONDS = 0.001


@functools.cache
def _layout(num_envs: int, *, is_box: bool) -> ActionLayout:
    """That of every group of so many: actions arrive by the thousand."""
    box = BoxSpec((2,), (0.0, 0.0), (1.0, 1.0))
    return ActionLayout(box if is_box else DiscreteSpec(MOST_ACTIONS), num_envs)


class Wire:
    """One direction of a connection: messages arrive in order, after a while."""

    def __init__(self, world: "World", name: str, loss: str, arrive: Callable[[bytes], None]):
        self._world = world
        self._name = name
        self._loss = loss  # the fault that loses messages here
        self._arrive = arrive
        self._free_at = 0.0
        self.is_broken = False

    def send(self, data: bytes, *, may_be_cut_short: bool = False) -> bool:
        """Sends bytes; False if they are lost, and with them all that would follow."""
        world, faults = self._world, self._world.faults
        if self.is_broken:
            return False
        if world.strikes(getattr(faults, self._loss)):
            self.is_broken = True
            return False
        if may_be_cut_short and world.strikes(faults.truncate):
            data = data[: world.random.randrange(len(data))]
        copies = 1 + world.strikes(faults.duplicate)
        for _ in range(copies):
            delay = world.random.expovariate(1 / _LATENCY_SECONDS)
            if world.strikes(faults.delay):
                delay = min(30 * delay, KEEPALIVE_SECONDS)
            # Never at the same moment as the one before: then the seed would decide on their order.
            self._free_at = max(self._free_at + 1e-7, world.timeline.now + delay)
            world.timeline.after(
                self._free_at - world.timeline.now, self._name, lambda: self._arrive(data)
            )
        return True


class SimulatedConnection:
    """Between the real `Lease` of an env server and the real `Connection` of a learner."""

    def __init__(self, world: "World", process: "Process"):
        self._world = world
        self._process = process
        self.is_open_here = True  # the env server's side
        self.is_open_there = True  # the learner's side
        self.learner = world.learner
        self.connection_there = Connection(
            world.learner.hub, f"process {process.number}", queue.SimpleQueue()
        )
        name = f"process {process.number}"
        self._to_learner = Wire(world, f"{name} up", "lose_request", self._arrive_there)
        self._to_env_server = Wire(world, f"{name} down", "lose_reply", self._arrive_here)
        self.seeds: list[list[int]] = []  # of each group, from its first step on
        self._slots: list[list[int]] = []
        # Of each group: how often it was reset, with which seeds last, and which step came of that.
        self._playing: list[tuple[int, list[int], int]] = []
        self.lease = Lease(process.options, self, last_key=process.last_key)
        self.lease.open()

    @property
    def is_open(self) -> bool:
        """Whether one side at least has not noticed its end."""
        return self.is_open_here or self.is_open_there

    def put(self, message: ToLearner) -> None:
        """Takes the place of the env server's outbox."""
        data = encode_from_env_server(message)
        is_step = self.lease.is_serving
        if not self._to_learner.send(data, may_be_cut_short=is_step) and self.is_open_here:
            self._break()

    def _break(self) -> None:
        """Both sides will notice, each in its own time."""
        self._to_learner.is_broken = self._to_env_server.is_broken = True
        for name, close in (("here", self.close_here), ("there", self.close_there)):
            seconds = self._world.random.uniform(0, KEEPALIVE_SECONDS)
            self._world.timeline.after(seconds, f"closes {name}", close)

    def cut(self) -> None:
        """The network between the two is gone; what is on its way may still arrive."""
        if self.is_open:
            self._break()

    def _arrive_there(self, data: bytes) -> None:
        if self.learner is not self._world.learner:
            return  # that process has ended
        message = receive_from_env_server(data)
        # Steps also after the stream has ended on that side: they are a dead incarnation's. (With
        # gRPC nobody would read them; the core must not depend on that.)
        is_late_step = isinstance(message, StepPayload) and self.connection_there.is_ready
        if not self.is_open_there and not is_late_step:
            return
        if not self.connection_there.receive(message):
            self.is_open_there = False
        self.flush()

    def flush(self) -> None:
        """Carries what the learner has put out."""
        outbox = self.connection_there.outbox
        while not outbox.empty():
            item = outbox.get_nowait()
            if item is None or isinstance(item, EndError):
                if isinstance(item, EndError):
                    self._world.ended_with(item)
                if self.is_open:
                    self._break()
            elif self.is_open_there and not self._to_env_server.send(encode_from_learner(item)):
                self._break()

    def _arrive_here(self, data: bytes) -> None:
        if not self._process.is_running(self):
            return
        if self._process.frozen_until > self._world.timeline.now:
            rest = self._process.frozen_until - self._world.timeline.now
            self._world.timeline.after(rest, "thaws", lambda: self._arrive_here(data))
            return
        message = receive_from_learner(data)
        if isinstance(message, ActionsPayload):
            self._check_actions(message)
        elif not isinstance(message, WireError) and message.HasField("assign") and not self.seeds:
            self._take_seeds(message.assign)
        try:
            self.lease.handle(message)
        except WireError as error:
            self._world.env_server_refused(str(error))
            self._break()

    def _take_seeds(self, assign: Assign) -> None:
        self.seeds = [list(group.seeds) for group in assign.groups]
        self._slots = [list(group.slots) for group in assign.groups]
        self._playing = [(0, seeds, 0) for seeds in self.seeds]
        for group in assign.groups:
            for seed, slot in zip(group.seeds, group.slots, strict=True):
                self._world.oracle.started(seed, slot, is_evaluation=group.evaluation)

    def _check_actions(self, message: ActionsPayload) -> None:
        """Every action must be the one that follows from all that its environment has shown."""
        is_box = not self._world.num_actions
        layouts = [_layout(len(seeds), is_box=is_box) for seeds in self.seeds]
        try:
            parts = list(split(message, layouts))
        except WireError:
            return  # the lease refuses it
        for group, data in parts:
            header, actions = layouts[group].unpack(data)
            num_resets, seeds, first = self._playing[group]
            if header.sequence < first:
                continue  # it comes a second time: the lease refuses it
            if actions is None:
                seeds = seeds_of_reset(self.seeds[group], num_resets + 1)
                self._playing[group] = (num_resets + 1, seeds, header.sequence + 1)
                self._world.oracle.num_checked["reset"] += len(seeds)
                for seed, slot in zip(seeds, self._slots[group], strict=True):
                    self._world.oracle.started(seed, slot, is_evaluation=True)
                continue
            for seed, action in zip(seeds, actions.tolist(), strict=True):
                self._world.oracle.check_action(seed, header.sequence - first, action)

    def close_here(self) -> None:
        """The env server notices that the stream has ended."""
        if self.is_open_here:
            self.is_open_here = False
            self._to_learner.is_broken = True
            self.lease.close()
            self._process.disconnected(self)

    def close_there(self) -> None:
        """The learner notices that the stream has ended."""
        if self.is_open_there:
            self.is_open_there = False
            if self.learner is self._world.learner:
                self.connection_there.close()


class Process:
    """An env-server process: killed, frozen, started again, and always returning.

    Its log of sent steps is the file that outlives it.
    """

    def __init__(self, world: "World", number: int, options: Options):
        self._world = world
        self.number = number
        self.options = options
        self.last_key = 0  # of its newest lease
        self.frozen_until = 0.0
        self.connection: SimulatedConnection | None = None
        self._is_stopped = False

    def is_running(self, connection: SimulatedConnection) -> bool:
        """Whether this connection still has its process behind it."""
        return connection is self.connection and connection.is_open_here

    def connect(self) -> None:
        """Opens a stream, unless there is one or the process has stopped."""
        if self.connection is None and not self._is_stopped:
            self.connection = SimulatedConnection(self._world, self)
            self._world.connections.append(self.connection)

    def disconnected(self, connection: SimulatedConnection) -> None:
        """The connection has ended: return soon."""
        if connection is self.connection:
            self.connection = None
            self.last_key = connection.lease.key
            seconds = self._world.random.uniform(0, KEEPALIVE_SECONDS)
            self._world.timeline.after(seconds, f"process {self.number} returns", self.connect)

    def kill(self) -> None:
        """SIGKILL, and a new process with the same log. The learner may notice much later."""
        connection, self.connection = self.connection, None
        self.frozen_until = 0.0
        if connection is not None:
            connection.is_open_here = False
            connection.lease.close()
            noticed = self._world.random.choice([0.0, KEEPALIVE_SECONDS])
            self._world.timeline.after(noticed, "the kill is noticed", connection.close_there)
        seconds = self._world.random.uniform(0, KEEPALIVE_SECONDS)
        self._world.timeline.after(seconds, f"process {self.number} starts", self.connect)

    def crash(self) -> None:
        """Like `kill`, but what is started again does not know its last lease."""
        self.kill()
        self.last_key = 0

    def freeze(self) -> None:
        """Stands still; if it is for too long, the learner closes the stream meanwhile."""
        world, connection = self._world, self.connection
        seconds = world.random.uniform(0, 3 * KEEPALIVE_SECONDS)
        self.frozen_until = world.timeline.now + seconds
        if connection is None or seconds < KEEPALIVE_SECONDS:
            return
        world.timeline.after(KEEPALIVE_SECONDS, "a ping is missed", connection.close_there)
        # It still works off what it finds, and sends it, before it sees that the stream has ended.
        world.timeline.after(seconds + 0.01, "sees the end", connection.close_here)

    def stop(self) -> None:
        """SIGTERM: for good."""
        self._is_stopped = True
        connection = self.connection
        if connection is not None:
            connection.close_here()
            connection.close_there()
