"""An env server that steps and does not read holds neither slots nor threads for long."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from learner.serving import server
from learner.serving.connection import Connection
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


def _stalled(service: Service) -> tuple[Client, Connection]:
    """An env server that reads nothing after Assign, and its connection."""
    stalled = Client(service.address, 2 * SECONDS).shake_hands()
    (connection,) = service.hub.connections()
    assert isinstance(connection, Connection)
    for answer in _UNREAD:
        connection.outbox.put(answer)
    return stalled, connection


def _wait_for_end(service: Service) -> None:
    """No call is open, and no thread reads one."""
    wait_until(lambda: not service._streams)
    wait_until(lambda: all(each.name != "reader" for each in threading.enumerate()))


def test_who_does_not_read_its_answers_is_cut_off(service: Service) -> None:
    stalled, connection = _stalled(service)
    with stalled:
        connection.send_actions([b"one more"])
        assert service.hub.num_free == 6
        _wait_for_end(service)
        with Client(service.address).shake_hands() as other:
            other.step(0, FIRST)
            assert next_batch(service).slots.tolist() == list(other.groups[0].slots)


def test_who_breaks_the_contract_and_does_not_read_is_cut_off(service: Service) -> None:
    stalled, _ = _stalled(service)
    with stalled:
        stalled.step(7, FIRST)
        _wait_for_end(service)
        assert service.hub.num_free == 6
