"""An env server that steps and does not read holds neither slots nor calls nor memory."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from learner.serving import server
from learner.serving.server import Service
from tests.learner.serving.scripted_env_server import FIRST, Client, next_batch, served
from tests.patience import SECONDS, wait_until

# More than gRPC takes for one who does not read: 4 MiB were seen.
_UNREAD = [memoryview(bytes(1_000_000))] * 24


@pytest.fixture(params=["tcp", "unix"])
def service(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Service]:
    monkeypatch.setattr(server, "_TAKE_END_SECONDS", 0.01)
    bind = "127.0.0.1:0" if request.param == "tcp" else f"unix:{tmp_path}/socket"
    with served(bind) as service:
        yield service


def _stalled(service: Service) -> tuple[Client, Any, set[asyncio.Task[Any]]]:
    """An env server that reads nothing after Assign, its connection, and what waits for it."""
    before = asyncio.all_tasks(service._loop)
    stalled = Client(service.address, 2 * SECONDS).shake_hands()
    (connection,) = service.hub.connections()
    assert isinstance(connection, server.Connection)
    for answer in _UNREAD:
        connection.transport.outbox.put(answer)
    return stalled, connection, asyncio.all_tasks(service._loop) - before


def _wait_for_end(service: Service, tasks: set[asyncio.Task[Any]]) -> None:
    """One waits for the next call; over a Unix socket one of gRPC's own for the stream's close."""
    is_unix = service.address.startswith("unix:")
    wait_until(lambda: sum(not task.done() for task in tasks) <= 1 + is_unix)


def test_who_does_not_read_its_answers_is_cut_off(service: Service) -> None:
    stalled, connection, tasks = _stalled(service)
    with stalled:
        connection.send_actions([b"one more"])
        assert service.hub.num_free == 6
        _wait_for_end(service, tasks)
        with Client(service.address).shake_hands() as other:
            other.step(0, FIRST)
            assert next_batch(service).slots.tolist() == list(other.groups[0].slots)


def test_who_breaks_the_contract_and_does_not_read_is_cut_off(service: Service) -> None:
    stalled, _, tasks = _stalled(service)
    with stalled:
        stalled.step(7, FIRST)
        _wait_for_end(service, tasks)
        assert service.hub.num_free == 6
