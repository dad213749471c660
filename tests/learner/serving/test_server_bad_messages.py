"""Messages that break a rule, against the real service over real gRPC, or over a link."""

from typing import Any

import grpc
import numpy as np
import pytest

from learner.serving.server import Service
from seedrl.wire import seedrl_pb2
from seedrl.wire.framing import ActionsPayload, StepPayload, ToLearner
from tests.learner.serving.scripted_env_server import (
    FIRST,
    MID,
    SECONDS,
    Client,
    hello,
    next_batch,
    ready,
    wait_until_free,
)

pytestmark = pytest.mark.usefixtures("way")


def _garbage(client: Client) -> None:
    client.send(StepPayload(b"x" * 40))


def _wrong_group(client: Client) -> None:
    client.groups = [*client.groups, client.groups[0]]
    client.step(0, FIRST, group=2)


def _wrong_sequence(client: Client) -> None:
    client.step(5, FIRST)


def _not_first(client: Client) -> None:
    client.step(0, MID)


def _two_in_flight(client: Client) -> None:
    client.step(0, FIRST)
    client.step(1, MID)


def _not_finite(client: Client) -> None:
    client.step(0, FIRST, mark=float("nan"))


def _hello_again(client: Client) -> None:
    client.send(hello())


@pytest.mark.parametrize(
    ("break_a_rule", "message"),
    [
        (_garbage, "expected group < 2, got"),
        (_wrong_group, "expected group < 2, got 2"),
        (_wrong_sequence, "expected sequence 0, got 5"),
        (_not_first, "expected FIRST, got MID"),
        (_two_in_flight, "got a second step in flight"),
        (_not_finite, "expected finite numbers in observation.a"),
        (_hello_again, "expected step, got hello"),
    ],
)
def test_a_bad_message_ends_its_own_stream_and_no_other(
    unix_service: Service, break_a_rule: Any, message: str
) -> None:
    service = unix_service
    with Client(service.address) as good, Client(service.address) as bad:
        good.shake_hands().step(0, FIRST)
        assert service.hub.wait_for_spec(SECONDS) is not None
        bad.shake_hands()
        break_a_rule(bad)
        code, details = bad.end()
        assert code == grpc.StatusCode.INVALID_ARGUMENT
        assert message in details
        wait_until_free(service, 4)
        batch = next_batch(service)
        assert batch.slots.tolist() == list(good.groups[0].slots)
        service.hub.answer(batch, np.zeros(len(batch.slots), np.int32))
        assert isinstance(good.receive(), ActionsPayload)


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([ready()], "expected hello, got ready"),
        ([hello(num_envs=0)], "expected num_envs >= 1, got 0"),
        ([StepPayload(b"")], "expected hello, got step"),
    ],
)
def test_a_stream_begins_with_hello(
    unix_service: Service, messages: list[ToLearner], expected: str
) -> None:
    with Client(unix_service.address) as client:
        for message in messages:
            client.send(message)
        assert client.end() == (grpc.StatusCode.INVALID_ARGUMENT, expected)


def test_a_spec_that_is_none_is_the_senders_fault(unix_service: Service) -> None:
    with Client(unix_service.address) as client:
        client.send(hello())
        client.receive()
        client.send(seedrl_pb2.FromEnvServer(ready=seedrl_pb2.Ready()))
        code, details = client.end()
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert details.startswith("observation: expected array, dict or tuple")
    assert unix_service.hub.wait_for_spec(0.0) is None
