"""Who may begin a call: those who show the token and do not come too fast."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from learner.serving.access import entry
from learner.serving.access.entry import Entry
from learner.serving.peer import EndError
from learner.serving.server import Service
from seedrl.config import ServingConfig
from seedrl.wire.framing import ToLearner
from tests.learner.serving.scripted_env_server import Client, hello, ready, service_at

_TOKEN = "0123456789abcdef"
_HERE, _THERE = "ipv4:127.0.0.1:{}", "ipv4:10.0.0.1:{}"


class _AbortedError(Exception):
    """What gRPC raises to end a call."""


class _Call:
    """A call's context."""

    def __init__(self, peer: str, token: str = _TOKEN) -> None:
        self._peer, self._token = peer, token
        self.code: grpc.StatusCode | None = None

    def peer(self) -> str:
        return self._peer

    def invocation_metadata(self) -> list[tuple[str, str]]:
        return [("authorization", f"Bearer {self._token}")]

    async def abort(self, code: grpc.StatusCode, details: str) -> None:
        self.code = code
        raise _AbortedError(details)


class _World:
    """An entry for two calls at once and one a second more, and all around it."""

    def __init__(self, folder: Path) -> None:
        (folder / "token").write_text(_TOKEN)
        config = ServingConfig(
            training_slots=0,
            evaluation_slots=0,
            token_file=str(folder / "token"),
            handshakes_per_second=1.0,
        )
        self.now, self.ports = 0.0, 0
        self.later: list[Callable[[], None]] = []
        self.refused: list[tuple[str, int]] = []
        hub: Any = SimpleNamespace(
            turn_away=lambda name, error, number=1: self.refused.append((name, number))
        )
        self.cleaned: list[float] = []
        self.entry = Entry(
            hub,
            config,
            lambda _, work: self.later.append(work),
            lambda: self.now,
            lambda: self.cleaned.append(self.now),
        )

    async def call(self, address: str = _HERE, token: str = _TOKEN) -> grpc.StatusCode | None:
        self.ports += 1
        context: Any = _Call(address.format(self.ports), token)
        try:
            await self.entry.admit(context)
        except _AbortedError:
            assert context.code is not None
        return context.code

    def calls(self, number: int, address: str = _HERE, token: str = _TOKEN) -> list[Any]:
        """How each of them ends; None for those that begin."""

        async def all_of_them() -> list[Any]:
            return [await self.call(address, token) for _ in range(number)]

        return asyncio.run(all_of_them())

    def look(self) -> None:
        self.now += 1.0
        works, self.later = self.later, []
        for work in works:
            work()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _World:
    monkeypatch.setattr(entry, "_PAUSE_SECONDS", 0.0)
    return _World(tmp_path)


_TOO_FAST = grpc.StatusCode.RESOURCE_EXHAUSTED
_UNKNOWN = grpc.StatusCode.UNAUTHENTICATED


def test_who_comes_too_fast_is_refused_and_nobody_else(world: _World) -> None:
    assert world.calls(4) == [None, None, _TOO_FAST, _TOO_FAST]
    assert world.calls(1, _THERE) == [None]
    world.now += 1.0
    assert world.calls(2) == [None, _TOO_FAST]


def test_who_has_no_token_takes_nothing_from_those_of_its_address_who_have(world: _World) -> None:
    assert world.calls(3, token="other") == [_UNKNOWN, _UNKNOWN, _TOO_FAST]
    assert world.calls(3) == [None, None, _TOO_FAST]


def test_refusals_are_counted_and_said_once_a_minute(
    world: _World, caplog: pytest.LogCaptureFixture
) -> None:
    world.calls(5)
    world.calls(3, _THERE)
    assert world.refused == []  # the hub's lock is not taken for each
    world.look()
    assert world.refused == [("127.0.0.1", 3), ("10.0.0.1", 1)]
    assert [record.getMessage() for record in caplog.records] == [
        "warning: 4 connections were refused, 3 of them of 127.0.0.1: expected at most 2 "
        "connections of one address at once, 1 a second (serving.handshakes_per_second); "
        "come back later"
    ]
    assert world.later == []
    for _ in range(59):
        world.calls(2)
        world.look()
    assert len(caplog.records) == 1
    world.look()
    assert caplog.records[1].getMessage().startswith("warning: 59 connections were refused, 59 of")
    assert world.later == []


def test_what_those_leave_who_break_the_contract_is_cleaned_up_once(world: _World) -> None:
    call: Any = _Call(_HERE.format(1))
    for code in (grpc.StatusCode.UNAVAILABLE, *[grpc.StatusCode.INVALID_ARGUMENT] * 3):
        world.entry.end(call, EndError(code, "why"))
    assert len(world.later) == 1
    world.look()
    assert (world.cleaned, world.later) == ([1.0], [])
    world.entry.end(call, EndError(grpc.StatusCode.INVALID_ARGUMENT, "why"))
    world.look()
    assert world.cleaned == [1.0, 2.0]


def test_few_refusals_wait_and_the_others_are_immediate(
    world: _World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entry, "_PAUSE_SECONDS", 1000.0)
    monkeypatch.setattr(entry, "MOST_WAITING", 1)

    async def calls() -> None:
        assert [await world.call() for _ in range(2)] == [None, None]
        for _ in range(2):
            waiting = asyncio.create_task(world.call())
            await asyncio.sleep(0)
            assert await world.call() == _TOO_FAST
            assert not waiting.done()
            waiting.cancel()  # as gRPC does if the peer leaves: then another may wait
            with pytest.raises(asyncio.CancelledError):
                await waiting

    asyncio.run(asyncio.wait_for(calls(), 100.0))


@pytest.fixture(params=["tcp", "unix"])
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    bind = "127.0.0.1:0" if request.param == "tcp" else f"unix:{tmp_path}/socket"
    service = service_at(bind, training=2, evaluation=0, handshakes_per_second=1e-6)
    service.start()
    yield service
    service.stop(grace_seconds=0.0)


def test_who_breaks_the_contract_has_to_wait_for_the_next_call(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entry, "_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(entry, "_BREACH_SECONDS", 1e6)  # what is a call here

    def end(first: ToLearner) -> grpc.StatusCode:
        with Client(service.address) as client:
            client.send(first)
            return client.end()[0]

    assert end(ready()) is grpc.StatusCode.INVALID_ARGUMENT
    assert end(hello()) is _TOO_FAST


def test_beyond_a_call_for_each_slot_none_is_read(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entry, "_PAUSE_SECONDS", 0.01)
    with Client(service.address).shake_hands(1) as first:
        with Client(service.address).shake_hands(1):
            pass
        with Client(service.address) as third:
            third.send(hello())
            code, details = third.end()
        assert code is _TOO_FAST
        assert details.startswith("expected at most 2 connections of one address at once, 1e-06 a")
        assert service.hub._serving.slots.epochs.tolist() == [1, 1]
        assert first.groups
