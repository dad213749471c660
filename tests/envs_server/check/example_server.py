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

from seedrl.wire import version
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


class OwnDefectError(Exception):
    """What a broken server dies of."""


class CartPole:
    """One environment, which steps and resets itself."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.state = np.zeros(4)
        self.step_type = LAST
        self.length = 0
        self.reward, self.discount = 0.0, 1.0

    def step(self, action: int) -> None:
        """The next row."""
        if self.step_type == LAST:
            self.reset()
            return
        self.state = self.state + (0.01 if action else -0.01)
        self.length += 1
        self.end()

    def reset(self) -> None:
        """A FIRST row."""
        self.state = self.random.uniform(-0.05, 0.05, 4)
        self.step_type, self.length = FIRST, 0
        self.reward, self.discount = 0.0, 1.0

    def end(self) -> None:
        """What a step gives beside its observation."""
        has_fallen = abs(self.state[0]) > 0.1
        self.step_type = LAST if has_fallen or self.length == 500 else MID
        self.reward, self.discount = 1.0, 0.0 if has_fallen else 1.0


class ExampleServer:
    """A `Subject`: serves until it is stopped, or told never to return."""

    cartpole = CartPole
    actions = frozenset({0, 1})

    def __init__(self, num_envs: int = 4) -> None:
        self.num_envs = num_envs
        self.sent: list[list[int]] = []  # of each group: its size, steps, answered
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._exit_code: int | None = None
        self._call: Any = None
        self._outgoing: queue.SimpleQueue[FromEnvServer | None] = queue.SimpleQueue()
        self._words = ""
        self.is_assigned = self.is_refused = False

    # What a `Subject` has to do.

    def start(self, address: str) -> None:
        self._stopped.clear()
        self._exit_code = None
        self.sent = []
        self._thread = threading.Thread(target=self._run, args=(address,))
        self._thread.start()

    def exit_code(self) -> int | None:
        return self._exit_code

    def last_words(self) -> str:
        return self._words

    def ask_to_end(self) -> None:
        self._exit_code = self.after_sigterm()
        self.stop()

    def stop(self) -> None:
        if self._thread is None:
            return
        self._stopped.set()
        while self._thread.is_alive():
            if self._call is not None:
                self._call.cancel()
            self._thread.join(0.01)

    # What an env server has to do.

    def _run(self, address: str) -> None:
        attempts = 0
        while not self._stopped.is_set():
            try:
                with grpc.insecure_channel(address) as channel:
                    code = self.stream(channel)
            except OwnDefectError as error:
                self._words, code = str(error), 1
            if code is not None:
                self._exit_code = code
                return
            attempts = self.pause(attempts)

    def pause(self, attempts: int) -> int:
        """Waits before another stream; the number of attempts so far."""
        # The lower half of what is allowed, for quick tests: a kit cannot see the difference.
        self._stopped.wait(0.02 * min(2**attempts, 5) * np.random.default_rng().uniform(0.5, 1))
        return attempts + 1

    def stream(self, channel: grpc.Channel) -> int | None:
        """One stream; the exit code if there should be no other."""
        outgoing: queue.SimpleQueue[FromEnvServer | None] = queue.SimpleQueue()
        self._outgoing = outgoing
        self.is_assigned = self.is_refused = False
        self._call = LearnerStub(channel).Connect(iter(outgoing.get, None), timeout=SECONDS)
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
            outgoing.put(None)
        return self.after_status("OK")

    def after_status(self, code: str) -> int | None:
        """The exit code, or None to return."""
        return 2 if self.is_refused or code in (*NEVER, "UNIMPLEMENTED") else None

    def after_finish(self) -> int | None:
        """The exit code, or None to return."""
        return 0

    def after_sigterm(self) -> int:
        """The exit code."""
        return 0

    def send(self, message: FromEnvServer) -> None:
        """Sends it over the stream."""
        self._outgoing.put(message)

    def hello(self) -> Hello:
        """The first message."""
        return Hello(
            major=version.MAJOR,
            num_envs=self.num_envs,
            num_groups=2,
            host="h",
            pid=1,
        )

    def handle(self, message: FromLearner) -> None:
        """Assign, or actions."""
        if message.HasField("assign"):
            self.build(message.assign)
            return
        if not message.actions:
            raise OwnDefectError("no message that is known")
        data = message.actions
        while data:
            group, actions, end = self.read(data)
            self.step(group, actions)
            data = data[end:]

    def read(self, data: bytes) -> tuple[int, np.ndarray, int]:
        """The group and the actions with which a message begins, and where they end."""
        group, size, sequence = struct.unpack_from("<IIQ", data)
        if group >= len(self.sent) or size != self.sent[group][0]:
            raise OwnDefectError("no such group, or of another size")
        end = 16 + size * 4 + (size * 4 % 8)
        if len(data) < end or any(data[16 + size * 4 : end]):
            raise OwnDefectError("too short, or padding that is not zero")
        if sequence != self.sent[group][1] - 1:
            raise OwnDefectError("not of the step in flight")
        actions = np.frombuffer(data, "<i4", size, 16)
        if not set(actions.tolist()) <= self.actions:
            raise OwnDefectError("no action of CartPole")
        return group, actions, end

    def is_followed(self, assign: Assign) -> bool:
        """Whether an Assign does not contradict itself."""
        sizes = [len(group.slots) for group in assign.groups]
        slots = {slot for group in assign.groups for slot in group.slots}
        return (
            min(sizes, default=0) > 0
            and sum(sizes) == len(slots) <= self.num_envs
            and [len(group.seeds) for group in assign.groups] == sizes
            and all(seed < 2**31 for group in assign.groups for seed in group.seeds)
            and all(group.environment < len(assign.environments) for group in assign.groups)
            and not 0 < assign.max_message_bytes < 2**16
        )

    def build(self, assign: Assign) -> None:
        """Builds what is assigned, and sends the first steps; or refuses."""
        if self.is_assigned:
            raise OwnDefectError("a second Assign")
        self.is_assigned = True
        self.sent = [[len(group.slots), 0, 0] for group in assign.groups]
        known = {(id, arguments) for id in self.known() for arguments in self.known_arguments()}
        is_known = all((each.id, each.arguments) in known for each in assign.environments)
        if not is_known or not self.is_followed(assign):
            self.is_refused = True
            self.send(FromEnvServer(refusal=Refusal(reason="only CartPole-v1 is known")))
            return
        self.envs = [self.build_group(group) for group in assign.groups]
        self.send(FromEnvServer(ready=Ready(spec=self.spec())))
        for group, envs in enumerate(self.envs):
            for env in envs:
                env.reset()
            self.send_step(group)

    def known(self) -> Sequence[str]:
        """Environments that can be built."""
        return ["CartPole-v1"]

    def known_arguments(self) -> Sequence[str]:
        """Their arguments."""
        return ["", "{}"]

    def spec(self) -> dict[str, Any]:
        """Of one environment."""
        return SPEC

    def build_group(self, group: Group) -> list[CartPole]:
        """Its environments."""
        return [self.cartpole(seed) for seed in group.seeds]

    def step(self, group: int, actions: np.ndarray) -> None:
        """Steps a group."""
        self.sent[group][2] += 1
        for env, action in zip(self.envs[group], actions.tolist(), strict=True):
            env.step(action)
        self.send_step(group)

    def send_step(self, group: int) -> None:
        """Sends the rows of a group as they are."""
        self.sent[group][1] += 1
        self.send(FromEnvServer(step=self.payload(group, self.sent[group][1] - 1)))

    def payload(self, group: int, sequence: int) -> bytes:
        """A step."""
        envs = self.envs[group]
        header = struct.pack("<IIQ", group, len(envs), sequence)
        sections = [
            bytes(env.step_type for env in envs),
            np.array([env.reward for env in envs], "<f4").tobytes(),
            np.array([env.discount for env in envs], "<f4").tobytes(),
            np.array([env.state for env in envs], "<f4").tobytes(),
        ]
        return header + b"".join(map(self.padded, sections))

    def padded(self, section: bytes) -> bytes:
        """A section of a step, with zeros to a multiple of 8 bytes."""
        return section + bytes(-len(section) % 8)
