"""What only a link can do to the service; all else is in test_service*."""

from typing import Any

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
    ready,
    wait_until_free,
)
from tests.patience import wait_until


def _linked(service: Service, monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.setattr(Client, "offers_link", True)
    return Client(service.address).shake_hands()


def test_a_linked_env_server_sends_nothing_over_grpc(
    unix_service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _linked(unix_service, monkeypatch) as client:
        client.send_over_grpc(ready())
        expected = "expected all after Hello over the link"
        assert client.end() == (grpc.StatusCode.INVALID_ARGUMENT, expected)
    wait_until_free(unix_service, 6)


def test_a_message_too_long_for_a_link_is_its_senders_fault(
    unix_service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _linked(unix_service, monkeypatch) as client:
        client.send(StepPayload(bytes(2**20 + 1)))
        code, details = client.end()
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert details.startswith("expected messages of at most 1048576 bytes, got one of 10485")


def test_what_reading_one_link_raises_is_not_the_end_of_the_others(
    unix_service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = unix_service
    with _linked(service, monkeypatch) as good, _linked(service, monkeypatch) as bad:
        (good_link, bad_link) = (connection.link for connection in service.hub.connections())
        read = Link.receive_at_once

        def receive_at_once(link: Link) -> Any:
            if link is bad_link:
                raise MemoryError
            return read(link)

        monkeypatch.setattr(Link, "receive_at_once", receive_at_once)
        bad.step(0, FIRST)
        # Its text could hold anything: it stays in the learner's log.
        expected = "internal error; see the learner's log"
        assert bad.end() == (grpc.StatusCode.UNAVAILABLE, expected)
        good.step(0, FIRST)
        assert next_batch(service).slots.tolist() == list(good.groups[0].slots)
    assert good_link is not bad_link
    assert service.failure is None


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
