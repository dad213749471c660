"""The ends of the stream speak our types, over a real socket and over a link alike."""

import contextlib
import itertools
import queue
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from seedrl.wire import channel
from seedrl.wire.channel import (
    CONNECT,
    LearnerConnection,
    connect,
)
from seedrl.wire.framing import (
    ActionsPayload,
    FramedStep,
    StepPayload,
    WireError,
    encode_from_learner,
    frame_step,
    receive_from_env_server,
)
from seedrl.wire.learner_end import connect_link, learner_handler, server_options
from seedrl.wire.link import Link
from seedrl.wire.seedrl_pb2 import Assign, Finish, FromEnvServer, FromLearner, Hello
from tests.patience import SECONDS
from tests.typed_call import connect_method

_LIMIT = 2**16


@contextlib.contextmanager
def _served(folder: Path, serve: Any) -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(2), options=server_options(_LIMIT))
    server.add_generic_rpc_handlers((learner_handler(serve, _LIMIT),))
    path = f"unix:{folder}/learner"
    server.add_insecure_port(path)
    server.start()
    yield path
    server.stop(None).wait()


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

    with _served(tmp_path, serve) as address:
        yield address, seen


def test_a_message_over_twice_the_limit_is_refused_and_the_learner_lives(
    served: tuple[str, "queue.Queue[object]"],
) -> None:
    address, _ = served
    with connect(address) as opened:
        with pytest.raises(grpc.RpcError) as failure:
            list(connect_method(opened)(iter([StepPayload(bytes(2 * _LIMIT))]), timeout=SECONDS))
        assert failure.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        hello = FromEnvServer(hello=Hello(major=1))
        (answer,) = connect_method(opened)(iter([hello]), timeout=SECONDS)
    assert answer.finish.reason == "FromEnvServer"


def test_a_message_over_the_limit_is_refused_in_words(
    served: tuple[str, "queue.Queue[object]"],
) -> None:
    address, seen = served
    steps = [FramedStep([bytes(n)], n) for n in (_LIMIT + 1, _LIMIT + _LIMIT // 4)]
    with connect(address) as opened:
        list(connect_method(opened)(iter(steps), timeout=SECONDS))
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
    with grpc.insecure_channel(address, compression=grpc.Compression.Gzip) as opened:
        call = opened.stream_stream(CONNECT)(iter([bytes(10_000)]), timeout=SECONDS)
        assert call.code() is grpc.StatusCode.UNIMPLEMENTED
    assert seen.empty()


_HELLO = FromEnvServer(hello=Hello(major=2, num_envs=1))

_FINISH = FromLearner(finish=Finish(reason="enough"))


def _echo(messages: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
    """A learner that answers two steps with their own bytes, and takes a link if it is offered."""
    hello = next(messages).hello
    reached = connect_link(hello.link, 2**20)
    link = reached if isinstance(reached, Link) else None
    with contextlib.ExitStack() as stack:
        if link is not None:
            stack.enter_context(contextlib.closing(link))
            messages = map(receive_from_env_server, link.receive())
        yield FromLearner(assign=Assign(lease=7, linked=link is not None))
        for step in itertools.islice(messages, 2):
            answer = ActionsPayload(bytes(step))
            if link is None:
                yield answer
            else:
                link.send(encode_from_learner(answer))
        yield _FINISH


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    with _served(tmp_path, _echo) as path:
        yield path


@pytest.mark.parametrize("local_link", [False, True])
def test_messages_go_and_arrive_in_order_whatever_carries_them(
    address: str, local_link: bool
) -> None:
    with LearnerConnection(address, local_link=local_link) as connection:
        connection.put(_HELLO)
        messages = connection.messages()
        assign = next(messages)
        assert isinstance(assign, FromLearner) and assign.assign.lease == 7
        assert assign.assign.linked == (local_link and sys.platform == "linux")
        connection.put(StepPayload(b"first"))
        connection.put(StepPayload(b"second"))
        answers = [next(messages), next(messages)]
        assert [bytes(answer) for answer in answers] == [b"first", b"second"]
        assert list(messages) == [_FINISH]


@pytest.mark.parametrize(("seconds", "lengths"), [(0.0, [10, 20]), (SECONDS, [30])])
def test_steps_that_follow_their_actions_at_once_leave_together(
    tmp_path: Path, seconds: float, lengths: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "_TOGETHER_SECONDS", seconds)

    def serve(messages: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        next(messages)
        yield FromLearner(assign=Assign())
        yield ActionsPayload(bytes(8))
        while sum(found) < 30:
            found.append(len(next(messages)))
        yield _FINISH

    found: list[int] = []
    with (
        _served(tmp_path, serve) as address,
        LearnerConnection(address) as connection,
    ):
        connection.put(_HELLO)
        messages = connection.messages()
        assert [next(messages), bytes(next(messages))] == [FromLearner(assign=Assign()), bytes(8)]
        connection.put(frame_step(10, [bytes(10)]))
        connection.put(frame_step(20, [bytes(20)]))
        assert list(messages) == [_FINISH]
    assert found == lengths


@pytest.mark.parametrize("local_link", [False, True])
@pytest.mark.parametrize("is_cancelled", [True, False])
def test_who_receives_is_woken_by_the_end(
    tmp_path: Path, local_link: bool, is_cancelled: bool
) -> None:
    def serve(messages: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        reached = connect_link(next(messages).hello.link, 2**20)
        link = reached if isinstance(reached, Link) else None
        with contextlib.nullcontext() if link is None else contextlib.closing(link):
            yield FromLearner(assign=Assign(linked=link is not None))
            if is_cancelled:
                context.add_callback(ended.set)
                assert ended.wait(SECONDS)
            else:
                assert list(messages) == []

    ended = threading.Event()
    with (
        _served(tmp_path, serve) as address,
        LearnerConnection(address, local_link=local_link) as connection,
    ):
        connection.put(_HELLO)
        messages = connection.messages()
        next(messages)
        if is_cancelled:
            threading.Timer(0.05, connection.cancel).start()
            with pytest.raises(grpc.RpcError):
                next(messages)
        else:
            connection.await_end(SECONDS)
            assert list(messages) == []
