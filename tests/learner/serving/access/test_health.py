"""Probes that say nothing, or do not read, keep nobody out."""

import queue
from collections import Counter
from collections.abc import Iterator

import grpc
import pytest

from learner.serving.access import health
from learner.serving.access.health import MOST_PROBES
from learner.serving.handshake.deadlines import MOST_SILENT
from learner.serving.server import Service
from tests.learner.serving.scripted_env_server import Client, served
from tests.patience import SECONDS, wait_until

_CHECK = "/grpc.health.v1.Health/Check"
_STREAMS_PER_CHANNEL = 16


@pytest.fixture
def service() -> Iterator[Service]:
    with served("127.0.0.1:0") as service:
        yield service


def test_probes_that_say_nothing_keep_no_env_server_out(service: Service) -> None:
    number = 6 + 2 * MOST_SILENT + _STREAMS_PER_CHANNEL  # more than a server of 6 slots can have
    silence: queue.SimpleQueue[None] = queue.SimpleQueue()
    options = [("grpc.use_local_subchannel_pool", 1)]
    channels = [
        grpc.insecure_channel(service.address, options)
        for _ in range(-(-number // _STREAMS_PER_CHANNEL))
    ]
    calls = [
        channels[index // _STREAMS_PER_CHANNEL]
        .stream_unary(_CHECK)
        .future(iter(silence.get, None), timeout=SECONDS)
        for index in range(number)
    ]
    wait_until(lambda: sum(call.done() for call in calls) >= number - MOST_PROBES)
    with Client(service.address).shake_hands() as honest:
        assert honest.groups
    codes = Counter(call.code() for call in calls)
    assert set(codes) == {grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE}
    assert {call.details() for call in calls} == {
        "16 probes have not sent their request yet; try again",
        "expected a request within 2 seconds",
    }
    for channel in channels:
        channel.close()
    for _ in calls:
        silence.put(None)


def test_a_probe_is_answered_at_its_first_request(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "HELLO_SECONDS", SECONDS)
    requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    requests.put(b"\x0a\x05other")
    with grpc.insecure_channel(service.address) as channel:
        call = channel.stream_unary(_CHECK).future(iter(requests.get, None), timeout=SECONDS)
        assert call.code() is grpc.StatusCode.NOT_FOUND
        requests.put(None)
