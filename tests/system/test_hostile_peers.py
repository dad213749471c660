"""Peers that flood, lie, or say nothing, beside an honest env server: they harm themselves alone.

The service is a process of its own, the honest env server another one; the hostile peers are in
this one, over real sockets. Figures go on record; what is asserted of speed leaves room for a busy
machine.
"""

import asyncio
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from seedrl.spec_json import encode_spec
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec
from seedrl.wire.channel import CONNECT
from seedrl.wire.seedrl_pb2 import FromEnvServer, FromLearner, Sent
from tests.faults.scale import scaled
from tests.patience import SECONDS, wait_until
from tests.system import attacks
from tests.system.attacks import CUT, MIB, Attack, End, Messages, code_of, hello, lies, ready, run
from tests.system.served_process import Served, env_server

pytestmark = [
    pytest.mark.gate,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]

_OURS = {"INVALID_ARGUMENT", "FAILED_PRECONDITION", "RESOURCE_EXHAUSTED", "UNAVAILABLE", CUT}
_COMPRESSED = "UNIMPLEMENTED"  # gRPC's own
_ENVS = 4
Record = Callable[[str, object], None]
_Attacking = Coroutine[Any, Any, list[End]]


@pytest.fixture(params=["tcp"])
def served(tmp_path: Path) -> Iterator[Served]:
    """With an honest env server that steps."""
    with (
        Served(tmp_path, "127.0.0.1:0", num_slots=8) as served,
        env_server(served.seen.address, _ENVS),
    ):
        wait_until(lambda: served.seen.rows > 50)
        yield served


def _attack(address: str, num_streams: int, messages: Messages, **options: Any) -> _Attacking:
    return attacks.attack(address, Attack(num_streams, messages, options))


def _beside(
    served: Served, attack: Callable[[], list[End]], record: Record, name: str
) -> tuple[list[End], float]:
    """Runs an attack and records what became of it and of the others; ends and memory."""
    before = served.seen
    undisturbed = served.rate(2.0)
    start = served.seen
    ends = attack()
    last = served.seen
    beside = (last.rows - start.rows) / max(last.seconds - start.seconds, 1e-9)
    wait_until(lambda: served.seen.seconds > last.seconds)
    after = served.seen
    record(f"{name}_streams", len(ends))
    record(f"{name}_ended_seconds", round(max(end.seconds for end in ends), 2))
    record(f"{name}_rate_of_others", round(beside / undisturbed, 2))
    record(f"{name}_rss_mib", round(after.rss_mib - before.rss_mib, 1))
    codes = Counter(end.code for end in ends)
    record(f"{name}_codes", " ".join(f"{code}:{number}" for code, number in codes.items()))
    assert set(codes) <= _OURS | {_COMPRESSED}, codes
    assert after.pid == before.pid and served.process.poll() is None
    assert after.broken == [] and after.live == _ENVS
    assert served.rate(1.0) > undisturbed / 4
    return ends, after.rss_mib - before.rss_mib


def test_a_thousand_streams_that_say_nothing_end_by_themselves(
    served: Served, record_property: Record
) -> None:
    address, number = served.seen.address, scaled(1000)
    ends, _ = _beside(
        served,
        lambda: run(_attack(address, number, lambda _: [])),
        record_property,
        "silent",
    )
    assert max(end.seconds for end in ends) < 15.0


def test_silent_streams_that_return_keep_no_env_server_out(
    served: Served, record_property: Record
) -> None:
    address = served.seen.address
    ends: list[End] = []

    async def storm() -> list[End]:
        async def again_and_again() -> None:
            while True:
                ends.extend(await _attack(address, 8, lambda _: []))

        tasks = [asyncio.create_task(again_and_again()) for _ in range(15)]
        await asyncio.sleep(1.0)
        start = time.monotonic()
        with env_server(address, 2):
            while served.seen.live < _ENVS + 2:
                await asyncio.sleep(0.05)
                assert time.monotonic() < start + 60.0, "it never joined"
        for task in tasks:
            task.cancel()
        return [End("UNAVAILABLE", time.monotonic() - start)]

    (joined,) = run(storm())
    record_property("joined_beside_120_silent_seconds", round(joined.seconds, 2))
    assert {end.code for end in ends} <= _OURS


_BAD = [
    hello(host="x" * 3 * MIB),
    hello(0),
    ready("{}"),
    b"\x1a\x05abc",
    b"\xff" * 100,
    FromEnvServer(step=b"x" * MIB).SerializeToString(),
    b"",
]
_BAD_SPECS = [
    "[" * 60_000,
    "{}",
    '{"action":{"discrete":1e999},"observation":{"array":{"shape":[4],"dtype":"float32"}}}',
    '{"action":{"discrete":2},"observation":{"array":{"shape":[4],"dtype":"(1,"}}}',
    '{"action":{"discrete":2},"observation":{"array":{"shape":[1e30],"dtype":"bool"}}}',
    '{"action":{"discrete":2},"observation":{"dict":{"\\ud800":{"array":'
    '{"shape":[],"dtype":"bool"}}}}}',
    "x" * 3 * MIB,
]


def test_hellos_and_readies_that_are_no_such_thing_are_refused_at_once(
    served: Served, record_property: Record
) -> None:
    address = served.seen.address
    ends, _ = _beside(
        served,
        lambda: [_end_of_admitted(address, [message]) for message in _BAD],
        record_property,
        "bad_hello",
    )
    assert {end.code for end in ends} == {"INVALID_ARGUMENT"}
    ends = [_end_of_admitted(address, [hello(), ready(spec)]) for spec in _BAD_SPECS]
    assert {end.code for end in ends} == {"INVALID_ARGUMENT"}
    record_property("bad_spec_ended_seconds", round(max(end.seconds for end in ends), 2))
    other = encode_spec(EnvSpec({"a" * 30_000: ArraySpec((), "bool")}, DiscreteSpec(3)))
    assert _end_of_admitted(address, [hello(), ready(other)]).code == "FAILED_PRECONDITION"


def _end_of_admitted(address: str, messages: list[bytes]) -> End:
    """Of a stream that says this; who has broken the contract has to wait until it may."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        (end,) = run(_attack(address, 1, lambda _: messages))
        if end.code != "RESOURCE_EXHAUSTED":
            return end
    raise AssertionError("it is not admitted any more")


def test_steps_without_end_and_messages_of_any_size_are_refused(
    served: Served, record_property: Record
) -> None:
    address = served.seen.address
    flood = [hello(), ready(encode_spec(EnvSpec(ArraySpec((4,), "float32"), DiscreteSpec(6))))]
    step = FromEnvServer(step=bytes(64)).SerializeToString()
    ends, _ = _beside(
        served,
        lambda: run(_attack(address, 1, lambda _: [*flood, *[step] * scaled(5000)])),
        record_property,
        "flood",
    )
    assert ends[0].code in ("INVALID_ARGUMENT", CUT)
    limit = 4 * MIB
    sizes = (limit + 1, 2 * limit - 100, 2 * limit + 100, 63 * MIB)
    giants = [FromEnvServer(step=bytes(size)).SerializeToString() for size in sizes]
    ends, grown = _beside(
        served,
        lambda: run(_attack(address, len(giants), lambda number: [giants[number]])),
        record_property,
        "giant",
    )
    assert {end.code for end in ends} <= {"INVALID_ARGUMENT", "RESOURCE_EXHAUSTED", CUT}
    assert grown < 2 * limit / MIB * len(giants)


def test_a_message_that_expands_is_refused_before_it_does(
    served: Served, record_property: Record
) -> None:
    address = served.seen.address
    bomb = bytes(scaled(256) * MIB)
    ends, grown = _beside(
        served,
        lambda: run(_attack(address, 1, lambda _: [bomb], compression=grpc.Compression.Gzip)),
        record_property,
        "bomb",
    )
    assert {end.code for end in ends} <= {_COMPRESSED, CUT}
    assert grown < 2 * 4 * 2


def test_who_lies_about_what_it_has_sent_ends_nobody_but_itself(
    served: Served, record_property: Record
) -> None:
    address = served.seen.address
    _beside(
        served,
        lambda: run(_attack(address, 1, lambda _: [hello(0, sent=lies())])),
        record_property,
        "lying",
    )

    async def own_lease() -> list[End]:
        async with grpc.aio.insecure_channel(address) as channel:
            call = channel.stream_stream(CONNECT)()
            await call.write(hello())
            key = FromLearner.FromString(await call.read()).assign.lease
        lie = Sent(lease=key, group=0, num_envs=1, steps=5, answered=0)
        return await _attack(address, 1, lambda _: [hello(sent=[lie])])

    ends = run(own_lease())
    assert ends[0].code == "INVALID_ARGUMENT"
    assert served.seen.broken == []
    assert served.rate(1.0) > 0


def test_a_greedy_hello_leaves_room_for_an_honest_one(
    served: Served, record_property: Record
) -> None:
    address = served.seen.address

    async def beside_greedy() -> list[End]:
        async with grpc.aio.insecure_channel(address) as channel:
            call = channel.stream_stream(CONNECT)()
            await call.write(hello(2**32 - 1))
            assign = FromLearner.FromString(await call.read()).assign
            assert sum(len(group.slots) for group in assign.groups) == 2  # of 4 that are free
            start = time.monotonic()
            with env_server(address, 2):
                while served.seen.live < _ENVS + 2:
                    await asyncio.sleep(0.05)
            seconds = time.monotonic() - start
            # It never gets ready, and is ended for that.
            return [End(await code_of(call), seconds)]

    (end,) = run(beside_greedy())
    record_property("joined_beside_greedy_seconds", round(end.seconds, 2))
    assert end.code == "UNAVAILABLE"


def test_hundreds_of_env_servers_at_once_all_get_an_answer(
    tmp_path: Path, record_property: Record
) -> None:
    number = scaled(256)

    async def storm(address: str) -> list[End]:
        async def join(channel: grpc.aio.Channel) -> End:
            call = channel.stream_stream(CONNECT)()
            start = time.monotonic()
            await call.write(hello())
            answer = await call.read()
            seconds = time.monotonic() - start
            if isinstance(answer, bytes):
                calls.append(call)
                return End("ASSIGN", seconds)
            return End(await code_of(call), seconds)

        calls: list[Any] = []
        settings = [("grpc.use_local_subchannel_pool", 1)]
        channels = [grpc.aio.insecure_channel(address, settings) for _ in range(number)]
        ends = await asyncio.gather(*map(join, channels))
        for channel in channels:
            await channel.close()
        return list(ends)

    with Served(tmp_path, num_slots=number) as served:
        ends = run(storm(served.seen.address))
        codes = Counter(end.code for end in ends)
        record_property("storm_slowest_seconds", round(max(end.seconds for end in ends), 2))
        record_property("storm_leases", codes["ASSIGN"])
        assert set(codes) <= {"ASSIGN", "RESOURCE_EXHAUSTED"}
        assert codes["ASSIGN"] == number
        wait_until(lambda: served.seen.live == 0)
        assert served.seen.broken == []


def test_connections_without_a_stream_are_closed(served: Served, record_property: Record) -> None:
    host, port = served.seen.address.rsplit(":", 1)
    number = scaled(1000)
    undisturbed = served.rate(2.0)
    start = time.monotonic()
    idle = [socket.create_connection((host, int(port))) for _ in range(number)]
    garbage = [socket.create_connection((host, int(port))) for _ in range(scaled(100))]
    for connection in garbage:
        connection.sendall(b"GET / HTTP/1.1\r\n\r\n" * 10)
    rate = served.rate(1.0)
    for connection in [*idle, *garbage]:
        connection.settimeout(SECONDS)
        # What the server says first, then its end.
        try:
            while connection.recv(2**16):
                pass
        except ConnectionResetError:
            pass
        connection.close()
    record_property("idle_sockets", number)
    record_property("idle_closed_seconds", round(time.monotonic() - start, 2))
    record_property("idle_rate_of_others", round(rate / undisturbed, 2))
    assert time.monotonic() - start < 30.0
    assert served.rate(1.0) > undisturbed / 4
