"""The two ends of the stream find each other and speak our types, over a real socket."""

import queue
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from seedrl.wire.channel import (
    CONNECT,
    connect,
    learner_handler,
    server_options,
)
from seedrl.wire.framing import ActionsPayload, FramedStep, StepPayload, WireError
from seedrl.wire.seedrl_pb2 import Finish, FromEnvServer, FromLearner, Hello
from tests.patience import SECONDS, wait_until
from tests.typed_call import connect_method

_LIMIT = 2**16


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, "queue.Queue[object]"]]:
    """An echo: answers each step with its own bytes as actions, and everything else with Finish."""
    seen: queue.Queue[object] = queue.Queue()

    def serve(messages: Iterator[object], context: grpc.ServicerContext) -> Iterator[object]:
        for message in messages:
            seen.put(message)
            if isinstance(message, StepPayload):
                yield ActionsPayload(message)
            else:
                yield FromLearner(finish=Finish(reason=type(message).__name__))

    server = grpc.server(ThreadPoolExecutor(2), options=server_options(_LIMIT))
    server.add_generic_rpc_handlers((learner_handler(serve, _LIMIT),))
    address = f"unix:{tmp_path}/learner"
    server.add_insecure_port(address)
    server.start()
    yield address, seen
    server.stop(None).wait()


def test_messages_arrive_as_our_own_types(served: tuple[str, "queue.Queue[object]"]) -> None:
    address, seen = served
    messages = [FromEnvServer(hello=Hello(major=1)), StepPayload(b"12345678")]
    with connect(address, max_message_bytes=_LIMIT) as channel:
        finish, actions = connect_method(channel)(iter(messages), timeout=SECONDS)
    assert finish == FromLearner(finish=Finish(reason="FromEnvServer"))
    assert bytes(actions) == b"12345678"
    assert seen.get() == messages[0]
    assert seen.get() == messages[1]


def test_a_message_over_twice_the_limit_is_refused_and_the_learner_lives(
    served: tuple[str, "queue.Queue[object]"],
) -> None:
    address, _ = served
    with connect(address, max_message_bytes=4 * _LIMIT) as channel:
        with pytest.raises(grpc.RpcError) as failure:
            list(connect_method(channel)(iter([StepPayload(bytes(2 * _LIMIT))]), timeout=SECONDS))
        assert failure.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        hello = FromEnvServer(hello=Hello(major=1))
        (answer,) = connect_method(channel)(iter([hello]), timeout=SECONDS)
    assert answer.finish.reason == "FromEnvServer"


def test_a_message_over_the_limit_is_refused_in_words(
    served: tuple[str, "queue.Queue[object]"],
) -> None:
    address, seen = served
    steps = [FramedStep([bytes(n)], n) for n in (_LIMIT + 1, _LIMIT + _LIMIT // 4)]
    with connect(address, max_message_bytes=4 * _LIMIT) as channel:
        list(connect_method(channel)(iter(steps), timeout=SECONDS))
    for length in (65537, 81920):
        error = seen.get()
        assert isinstance(error, WireError)
        assert str(error).startswith(
            f"expected messages of at most 65536 bytes, got one of {length}"
        )


def test_a_compressed_message_is_refused_and_not_read(
    served: tuple[str, "queue.Queue[object]"],
) -> None:
    address, seen = served
    with grpc.insecure_channel(address, compression=grpc.Compression.Gzip) as channel:
        call = channel.stream_stream(CONNECT)(iter([bytes(10_000)]), timeout=SECONDS)
        assert call.code() is grpc.StatusCode.UNIMPLEMENTED
    assert seen.empty()


def test_a_second_learner_cannot_share_a_port() -> None:
    servers = [grpc.server(ThreadPoolExecutor(1), options=server_options(_LIMIT)) for _ in range(2)]
    port = servers[0].add_insecure_port("127.0.0.1:0")
    with pytest.raises(RuntimeError, match="Failed to bind"):
        servers[1].add_insecure_port(f"127.0.0.1:{port}")
    for server in servers:
        server.stop(None).wait()


def test_what_nobody_reads_of_a_stream_waits_at_its_sender() -> None:
    """Else whoever is about to be refused could make a learner hold 4 MiB for each of its calls."""
    is_over, num_sent = threading.Event(), 0

    def serve(messages: Iterator[object], context: grpc.ServicerContext) -> Iterator[object]:
        if ("reads", "nothing") in context.invocation_metadata():
            is_over.wait(SECONDS)
            return
        yield from (FromLearner(finish=Finish()) for _ in messages)

    def endless() -> Iterator[StepPayload]:
        nonlocal num_sent
        while not is_over.is_set():
            yield StepPayload(bytes(_LIMIT // 2))
            num_sent += 1  # whoever sends asks for the next one when this one is on its way

    server = grpc.server(ThreadPoolExecutor(2), options=server_options(_LIMIT))
    server.add_generic_rpc_handlers((learner_handler(serve, _LIMIT),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with connect(f"127.0.0.1:{port}", max_message_bytes=_LIMIT) as channel:
        method = connect_method(channel)
        unread = method(endless(), timeout=SECONDS, metadata=[("reads", "nothing")])
        try:
            wait_until(lambda: num_sent > 0)
            # Time enough for all 4 MiB: others of the same connection are read meanwhile.
            hello = FromEnvServer(hello=Hello(major=1))
            assert len(list(method(iter([hello] * 500), timeout=SECONDS))) == 500
            assert num_sent * _LIMIT // 2 <= 2**20
        finally:
            is_over.set()
            unread.cancel()
    server.stop(None).wait()
