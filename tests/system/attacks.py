"""Peers that harm whom they can, over real sockets."""

import asyncio
import contextlib
import select
import socket
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, NamedTuple

import grpc
import numpy as np

from seedrl.types import StepType, TimeStep
from seedrl.wire import contract
from seedrl.wire.channel import CONNECT
from seedrl.wire.framing import StepPayload, encode_from_env_server
from seedrl.wire.payload import StepLayout
from seedrl.wire.seedrl_pb2 import (
    EnvSpec,
    FromEnvServer,
    FromLearner,
    Hello,
    Ready,
    Sent,
)
from seedrl.wire.spec import spec_message
from tests.learner.serving.scripted_env_server import SPEC
from tests.patience import SECONDS

CUT = "ended while writing"
ASSIGNED = "ASSIGN"
STREAMS_PER_CHANNEL = 16
MIB = 2**20
LIMIT = 4 * MIB  # of one message, while nothing else is known
MANY = 200  # more than a service of 8 slots takes at once
Messages = Callable[[int], list[bytes]]


class End(NamedTuple):
    """How a stream ended, and how long after it was opened."""

    code: str
    seconds: float


class Attack(NamedTuple):
    """One attempt.

    Attributes:
      streams: how many at once.
      messages: what each of them sends.
      is_assigned: whether one that is given slots has got its answer, and goes.
    """

    streams: int
    messages: Messages
    is_assigned: bool = False


def hello(num_envs: int = 1, **fields: Any) -> bytes:
    """A Hello, as bytes."""
    hello = Hello(major=contract.MAJOR, num_envs=num_envs, num_groups=1, **fields)
    return FromEnvServer(hello=hello).SerializeToString()


def ready(spec: EnvSpec | None = None) -> bytes:
    """A Ready, as bytes."""
    return FromEnvServer(ready=Ready(spec=spec)).SerializeToString()


def lies() -> list[Sent]:
    """Reports of steps that were never sent."""
    return [
        Sent(lease=lease, group=group, num_envs=2**32 - 1, steps=steps, answered=answered)
        for lease in (0, 1, 2**64 - 1)
        for group in (0, 2**32 - 1)
        for steps, answered in ((0, 1), (2**63, 0), (2**64 - 1, 2**64 - 1))
    ]


def _flood(num_steps: int) -> list[bytes]:
    """An env server that waits for no answer."""
    layout = StepLayout(SPEC, 1)
    leaves = [np.zeros((1, *leaf.shape), leaf.dtype) for _, leaf in SPEC.leaves()]
    step_types = [StepType.FIRST, *[StepType.MID] * (num_steps - 1)]
    steps = [
        TimeStep(
            np.full(1, step_type, np.uint8),
            np.zeros(1, np.float32),
            np.ones(1, np.float32),
            SPEC.unflatten(leaves),
        )
        for step_type in step_types
    ]
    sent = [
        encode_from_env_server(StepPayload(layout.pack(0, number, step)))
        for number, step in enumerate(steps)
    ]
    return [hello(), ready(spec_message(SPEC)), *sent]


def kinds() -> dict[str, Callable[[], Attack]]:
    """What there is, by name."""
    return {
        "silent_streams": lambda: _each([], MANY),
        "flood": lambda: _each(_flood(2000), 1),
        "giant_message": lambda: _each([FromEnvServer(step=bytes(63 * MIB)).SerializeToString()]),
        "lying_sent": lambda: _each([hello(0, sent=lies())], 4),
    }


def _each(messages: list[bytes], streams: int = 1) -> Attack:
    """So many streams that send the same."""
    return Attack(streams, lambda _: messages)


async def attack(address: str, attack: Attack) -> list[End]:
    """Opens streams, sends raw messages on each, waits for the end of all."""
    settings = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)]
    channels = [
        grpc.aio.insecure_channel(address, settings)
        for _ in range(-(-attack.streams // STREAMS_PER_CHANNEL))
    ]
    await asyncio.gather(*(channel.channel_ready() for channel in channels))

    async def stream(number: int) -> End:
        messages = attack.messages(number)
        opened = time.monotonic()
        channel = channels[number // STREAMS_PER_CHANNEL]
        call = channel.stream_stream(CONNECT)(_sent(messages, forever))
        code = await code_of(call, is_assigned=attack.is_assigned)
        return End(code, time.monotonic() - opened)

    forever = asyncio.Event()
    ends = await asyncio.gather(*map(stream, range(attack.streams)))
    forever.set()
    for channel in channels:
        await channel.close()
    return list(ends)


async def code_of(call: Any, *, is_assigned: bool = False) -> str:
    """How a call ended, which is known when everything before that was read."""
    with contextlib.suppress(grpc.RpcError, asyncio.InvalidStateError):
        while (answer := await call.read()) is not grpc.aio.EOF:
            if is_assigned and FromLearner.FromString(answer).HasField("assign"):
                return ASSIGNED
    code = await call.code()
    # This side's own words for a write that the other side's end has cut short.
    is_cut = code is grpc.StatusCode.INTERNAL and "error from Core" in await call.details()
    return CUT if is_cut else code.name


async def _sent(messages: list[bytes], forever: asyncio.Event) -> AsyncIterator[bytes]:
    for message in messages:
        yield message
    await forever.wait()


def run(work: Coroutine[Any, Any, list[End]]) -> list[End]:
    """Runs an attack, which ends."""
    return asyncio.run(asyncio.wait_for(work, SECONDS))


def idle_sockets(address: str, number: int) -> list[End]:
    """Connects and says nothing, not even HTTP/2's first words; waits for the end of each."""
    host, port = address.rsplit(":", 1)
    opened = {}
    poll = select.poll()
    for _ in range(number):
        connection = socket.create_connection((host, int(port)))
        opened[connection.fileno()] = connection, time.monotonic()
        poll.register(connection, select.POLLIN)
    ends = []
    while opened:
        for descriptor, _ in poll.poll(SECONDS * 1000):
            connection, start = opened[descriptor]
            with contextlib.suppress(ConnectionResetError):
                if connection.recv(2**16):  # the server's own first words
                    continue
            ends.append(End("closed", time.monotonic() - start))
            poll.unregister(descriptor)
            opened.pop(descriptor)[0].close()
    return ends
