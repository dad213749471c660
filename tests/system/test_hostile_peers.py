"""Peers that send nothing, or too much, beside an honest env server: they harm themselves only.

The service is a process of its own, the honest env server another one; the hostile peers are in
this one, over real sockets.
"""

import asyncio
import contextlib
import select
import socket
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest

from seedrl.wire import contract
from seedrl.wire.channel import CONNECT
from seedrl.wire.seedrl_pb2 import FromEnvServer, FromLearner, Hello
from tests.patience import SECONDS, wait_until
from tests.system.served_process import Served, env_server

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

_ENVS = 4
_MIB = 2**20
_MANY = 200  # more than a service of 8 slots takes at once
_LONGEST_SECONDS = 15.0
_MOST_GROWTH_MIB = 40
_STREAMS_PER_CHANNEL = 16
_ASSIGNED = "ASSIGN"
# A write that the other side's end has cut short has this side's own words.
_CUT = "ended while writing"
_REFUSALS = {"INVALID_ARGUMENT", "FAILED_PRECONDITION", "RESOURCE_EXHAUSTED", "UNAVAILABLE", _CUT}


class End(NamedTuple):
    """How a stream ended, and how long after it was opened."""

    code: str
    seconds: float


def _attack(address: str, num_streams: int, *messages: bytes) -> list[End]:
    """Opens streams, sends raw messages on each, waits for the end of all, or for their slots."""
    return asyncio.run(asyncio.wait_for(_streams(address, num_streams, messages), SECONDS))


async def _streams(address: str, num_streams: int, messages: tuple[bytes, ...]) -> list[End]:
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)]
    channels = [
        grpc.aio.insecure_channel(address, options)
        for _ in range(-(-num_streams // _STREAMS_PER_CHANNEL))
    ]
    await asyncio.gather(*(channel.channel_ready() for channel in channels))
    forever = asyncio.Event()

    async def sent() -> AsyncIterator[bytes]:
        for message in messages:
            yield message
        await forever.wait()

    async def stream(number: int) -> End:
        opened = time.monotonic()
        channel = channels[number // _STREAMS_PER_CHANNEL]
        code = await _code_of(channel.stream_stream(CONNECT)(sent()))
        return End(code, time.monotonic() - opened)

    ends = await asyncio.gather(*map(stream, range(num_streams)))
    forever.set()
    for channel in channels:
        await channel.close()
    return list(ends)


async def _code_of(call: Any) -> str:
    """How a call ended, which is known when everything before that was read."""
    with contextlib.suppress(grpc.RpcError, asyncio.InvalidStateError):
        while (answer := await call.read()) is not grpc.aio.EOF:
            if FromLearner.FromString(answer).HasField("assign"):
                return _ASSIGNED
    code = await call.code()
    is_cut = code is grpc.StatusCode.INTERNAL and "error from Core" in await call.details()
    return _CUT if is_cut else str(code.name)


# HTTP/2's first words, and settings without content.
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))


def _connect_without_a_call(address: str, number: int, words: bytes) -> list[End]:
    """Sends these words on each connection, and waits for its end."""
    host, port = address.rsplit(":", 1)
    opened = {}
    poll = select.poll()
    for _ in range(number):
        connection = socket.create_connection((host, int(port)))
        connection.sendall(words)
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


def _giant() -> bytes:
    return FromEnvServer(step=bytes(63 * _MIB)).SerializeToString()


_ATTACKS: dict[str, Callable[[str], list[End]]] = {
    "silent_streams": lambda address: _attack(address, _MANY),
    "giant_message": lambda address: _attack(address, 1, _giant()),
    "silent_connections": lambda address: _connect_without_a_call(address, _MANY, b""),
    "idle_connections": lambda address: _connect_without_a_call(address, _MANY, _PREFACE),
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """With an honest env server that steps."""
    folder = tmp_path_factory.mktemp("served")
    with (
        Served(folder, "127.0.0.1:0", num_slots=8) as served,
        env_server(served.seen.address, _ENVS),
    ):
        wait_until(lambda: served.seen.rows > 50)
        yield served


@pytest.mark.parametrize(
    "name",
    # Each idle one is ended after 10 seconds.
    [pytest.param(name, marks=[pytest.mark.gate] * (name[:4] == "idle")) for name in _ATTACKS],
)
def test_a_peer_that_attacks_harms_itself_only(served: Served, name: str) -> None:
    before = served.seen
    ends = _ATTACKS[name](before.address)
    assert {end.code for end in ends} <= ({"closed"} if "connections" in name else _REFUSALS)
    assert max(end.seconds for end in ends) < _LONGEST_SECONDS
    # The honest one kept its lease and goes on.
    rows = served.seen.rows
    wait_until(lambda: served.seen.rows > rows + _ENVS)
    after = served.seen
    assert (after.live, after.leases, after.pid) == (_ENVS, before.leases, before.pid)
    assert after.broken == []
    assert after.rss_mib - before.rss_mib < _MOST_GROWTH_MIB
    # Nothing of the peer is kept (but threads of gRPC's pool, which the next one uses).
    wait_until(lambda: served.seen.descriptors <= before.descriptors)


def test_a_storm_of_env_servers_all_get_an_answer(tmp_path: Path) -> None:
    slots = 32
    hello = FromEnvServer(hello=Hello(major=contract.MAJOR, num_envs=1, num_groups=1))
    with Served(tmp_path, num_slots=slots) as served:
        ends = _attack(served.seen.address, 40, hello.SerializeToString())
        codes = Counter(end.code for end in ends)
        assert set(codes) <= {_ASSIGNED, "RESOURCE_EXHAUSTED"}
        assert codes[_ASSIGNED] >= slots / 2  # some leave, and others take their places
        served.wait_for(0)
        assert served.seen.broken == []
