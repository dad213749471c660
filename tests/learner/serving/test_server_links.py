"""What only a link can do to the service; all else is in test_service*."""

import grpc
import numpy as np
import pytest

from learner.serving.connection import Connection
from learner.serving.server import Service
from seedrl.wire.framing import StepPayload
from seedrl.wire.local_link import Link
from tests.learner.serving.scripted_env_server import (
    FIRST,
    Client,
    next_batch,
    wait_until_free,
)
from tests.patience import wait_until


def _linked(service: Service, monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.setattr(Client, "offers_link", True)
    return Client(service.address).shake_hands()


def test_a_message_too_long_for_a_link_is_its_senders_fault(
    unix_service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _linked(unix_service, monkeypatch) as client:
        client.send(StepPayload(bytes(2**20 + 1)))
        code, details = client.end()
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert details.startswith("expected messages of at most 1048576 bytes, got one of 10485")


def test_who_does_not_read_its_answers_loses_its_lease(
    unix_service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = unix_service
    with _linked(service, monkeypatch) as client:
        client.step(0, FIRST)
        batch = next_batch(service)
        monkeypatch.setattr(Link, "send_at_once", lambda link, message: False)
        service.hub.answer(batch, np.zeros(len(batch.slots), np.int32))
        assert client.end()[0] == grpc.StatusCode.UNAVAILABLE
    wait_until_free(service, 6)


def test_a_defect_that_ends_the_reading_of_links_can_be_seen(
    unix_service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def close(connection: Connection, error: object = None) -> None:
        raise RuntimeError("a defect")

    with _linked(unix_service, monkeypatch) as client, monkeypatch.context() as patch:
        patch.setattr(Connection, "close", close)
        client.leave()
        wait_until(lambda: unix_service.failure is not None)
    assert str(unix_service.failure) == "a defect"
