"""An env server as a stranger might write it, from generated stubs; a thread.

Its parts are methods, so that a test can break one of them.
"""

import queue
import struct
import threading
from collections.abc import Sequence
from typing import Any

import grpc
import numpy as np

from seedrl.wire import contract
from seedrl.wire.seedrl_pb2 import (
    Assign,
    FromEnvServer,
    FromLearner,
    Group,
    Hello,
    Ready,
    Refusal,
)
from seedrl.wire.seedrl_pb2_grpc import LearnerStub
from tests.patience import SECONDS

FIRST, MID, LAST = range(3)
NEVER = ("INVALID_ARGUMENT", "FAILED_PRECONDITION", "UNAUTHENTICATED", "PERMISSION_DENIED")
SPEC = {"action": {"discrete": 2}, "observation": {"array": {"shape": [4], "dtype": "float32"}}}
_ENV = np.dtype([("type", "u1"), ("reward", "<f4"), ("discount", "<f4"), ("state", "<f4", 4)])


class OwnDefectError(Exception):
    """What a broken server dies of."""


class Walk:
    """One environment, which steps and resets itself: `row` is what it sends."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.row = np.zeros((), _ENV)
        self.row["type"] = LAST

    def step(self, action: int) -> None:
        """The next row."""
        if self.row["type"] == LAST:
            self.reset()
            return
        self.row["state"] += 0.01 if action else -0.01
        self.end()

    def reset(self) -> None:
        """A FIRST row."""
        self.row["state"] = self.random.uniform(-0.05, 0.05, 4)
        self.row["type"], self.row["reward"], self.row["discount"] = FIRST, 0, 1

    def end(self) -> None:
        """What a step gives beside its observation."""
        has_fallen = abs(self.row["state"][0]) > 0.1
        self.row["type"] = LAST if has_fallen else MID
        self.row["reward"], self.row["discount"] = 1, not has_fallen


class ExampleServer:
    """A subject of the checker: serves until it is stopped, or told never to return."""

    walk = Walk

    def __init__(self, num_envs: int = 4) -> None:
        self.num_envs = num_envs
        self._stopped = threading.Event()
        self._thread = threading.Thread()
        self._exit_code: int | None = None
        self._call: Any = None

    # What the checker asks of a process.

    def start(self, address: str) -> None:
        if not self._thread.is_alive():
            self._stopped.clear()
            self._exit_code = None
            self._thread = threading.Thread(target=self._run, args=(address,))
            self._thread.start()

    def exit_code(self) -> int | None:
        return self._exit_code

    def stop(self) -> None:
        self._stopped.set()
        while self._thread.is_alive():
            if self._call is not None:
                self._call.cancel()
            self._thread.join(0.01)

    # What an env server has to do.

    def _run(self, address: str) -> None:
        while not self._stopped.is_set():
            try:
                with grpc.insecure_channel(address) as channel:
                    code = self._stream(channel)
            except OwnDefectError:
                code = 1
            if code is not None:
                self._exit_code = code
                return
            self._stopped.wait(0.02)

    def _stream(self, channel: grpc.Channel) -> int | None:
        """One stream; the exit code if there should be no other."""
        self._outgoing = queue.SimpleQueue[FromEnvServer | None]()
        self.is_assigned = self.is_refused = False
        self._call = LearnerStub(channel).Connect(iter(self._outgoing.get, None), timeout=SECONDS)
        self.send(FromEnvServer(hello=self.hello()))
        try:
            for message in self._call:
                if message.HasField("finish"):
                    return self.after_finish()
                self.handle(message)
        except grpc.RpcError as error:
            return self.after_status(error.code().name)  # type: ignore[attr-defined]
        finally:
            self._call.cancel()
            self._outgoing.put(None)
        return self.after_status("OK")

    def after_status(self, code: str) -> int | None:
        """The exit code, or None to return."""
        return 2 if self.is_refused or code in NEVER else None

    def after_finish(self) -> int | None:
        """The exit code, or None to return."""
        return 0

    def send(self, message: FromEnvServer) -> None:
        """Sends it over the stream."""
        self._outgoing.put(message)

    def hello(self) -> Hello:
        """The first message."""
        major, minor = contract.MAJOR, contract.RESET_MINOR
        return Hello(
            major=major, minor=minor, num_envs=self.num_envs, num_groups=2, host="h", pid=1
        )

    def handle(self, message: FromLearner) -> None:
        """Assign, or actions."""
        if message.HasField("assign"):
            self._build(message.assign)
            return
        data = message.actions
        while data:
            group, actions, end = self.read(data)
            self.step(group, actions)
            data = data[end:]

    def read(self, data: bytes) -> tuple[int, np.ndarray, int]:
        """The group and the actions with which a message begins, and where they end."""
        group, size, sequence = struct.unpack_from("<IIQ", data)
        if group >= len(self.envs) or size not in (0, len(self.envs[group])):
            raise OwnDefectError("no such group, or of another size")
        end = 16 + size * 4 + (size * 4 % 8)
        if len(data) < end or sequence != self.sent[group] - 1:
            raise OwnDefectError("too short, or not of the step in flight")
        actions = np.frombuffer(data, "<i4", size, 16)
        if not set(actions.tolist()) <= {0, 1}:
            raise OwnDefectError("no action of the spec")
        return group, actions, end

    def is_followed(self, assign: Assign) -> bool:
        """True if an Assign is known, and does not contradict itself."""
        sizes = [len(group.slots) for group in assign.groups]
        slots = {slot for group in assign.groups for slot in group.slots}
        return (
            assign.environment.id == "CartPole-v1"
            and assign.environment.arguments in ("", "{}")
            and min(sizes, default=0) > 0
            and sum(sizes) == len(slots) <= self.num_envs
            and [len(group.seeds) for group in assign.groups] == sizes
            and all(seed < 2**31 for group in assign.groups for seed in group.seeds)
        )

    def _build(self, assign: Assign) -> None:
        """Builds what is assigned, and sends the first steps; or refuses."""
        if self.is_assigned:
            raise OwnDefectError("a second Assign")
        self.is_assigned = True
        if not self.is_followed(assign):
            self.is_refused = True
            self.send(FromEnvServer(refusal=Refusal(reason="only CartPole-v1 is known")))
            return
        self.envs = [self.build_group(group) for group in assign.groups]
        self.sent = [0 for _ in self.envs]
        self.send(FromEnvServer(ready=Ready(spec=SPEC)))
        for group, envs in enumerate(self.envs):
            for env in envs:
                env.reset()
            self.send_step(group)

    def build_group(self, group: Group) -> Sequence[Walk]:
        """Its environments."""
        return [self.walk(seed) for seed in group.seeds]

    def step(self, group: int, actions: np.ndarray) -> None:
        """Steps a group, or resets it."""
        if not len(actions):
            self.reset(group)
        for env, action in zip(self.envs[group], actions.tolist(), strict=bool(len(actions))):
            env.step(action)
        self.send_step(group)

    def reset(self, group: int) -> None:
        """Resets all environments of a group."""
        for env in self.envs[group]:
            env.reset()

    def send_step(self, group: int) -> None:
        """Sends the rows of a group as they are, each section padded to a multiple of 8 bytes."""
        rows = np.stack([env.row for env in self.envs[group]])
        step = struct.pack("<IIQ", group, len(rows), self.sent[group])
        for name in _ENV.names or ():
            section = rows[name].tobytes()
            step += section + bytes(-len(section) % 8)
        self.sent[group] += 1
        self.send(FromEnvServer(step=step))
