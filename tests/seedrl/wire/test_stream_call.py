"""The call of an env server, of both kinds: who does its work, and how it ends."""

import contextlib
import importlib
import subprocess
import sys
import threading
import types
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from seedrl.wire.channel import connect, learner_handler, server_options
from seedrl.wire.framing import ActionsPayload, StepPayload
from seedrl.wire.learner_connection import Outgoing
from seedrl.wire.seedrl_pb2 import Assign, FromEnvServer, FromLearner, Hello
from seedrl.wire.stream_call import StreamCall, ThreadedCall, UnthreadedCall, open_call
from tests.patience import SECONDS, wait_until

_HELLO = FromEnvServer(hello=Hello(major=2, num_envs=1))
_ASSIGN = FromLearner(assign=Assign(lease=7))
_VERSION = tuple(map(int, grpc.__version__.split(".")[:2]))
_IS_NATIVE = sys.platform == "linux" and _VERSION >= (1, 80)
_KINDS = pytest.mark.parametrize("kind", [UnthreadedCall, ThreadedCall])

Serve = Callable[[Iterator[Any], grpc.ServicerContext], Iterator[Any]]


@contextlib.contextmanager
def _served(serve: Serve) -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(2), options=server_options(2**20))
    server.add_generic_rpc_handlers((learner_handler(serve, 2**20),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


@contextlib.contextmanager
def _channel(serve: Serve) -> Iterator[grpc.Channel]:
    with _served(serve) as address, connect(address, max_message_bytes=2**20) as channel:
        yield channel


@contextlib.contextmanager
def _call(kind: Any, channel: grpc.Channel) -> Iterator[tuple[StreamCall, Outgoing]]:
    outgoing = Outgoing(2**10)
    with contextlib.closing(kind(channel, (), outgoing)) as call:
        yield call, outgoing


def _echo(messages: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
    for message in messages:
        yield _ASSIGN if isinstance(message, FromEnvServer) else ActionsPayload(bytes(message))


@_KINDS
def test_messages_of_all_threads_go_in_order_and_arrive(kind: Any) -> None:
    with _channel(_echo) as channel, _call(kind, channel) as (call, outgoing):

        def send(thread: int) -> None:
            for number in range(100):
                outgoing.put(StepPayload(bytes((thread, number))))
                call.push()

        threads = [threading.Thread(target=send, args=(thread,)) for thread in range(3)]
        for thread in threads:
            thread.start()
        found = [bytes(next(call)) for _ in range(300)]
        for thread in threads:
            thread.join()
        for number in range(3):
            assert [each[1] for each in found if each[0] == number] == list(range(100))
        for _ in range(2):  # who asks for the end again has no effect
            outgoing.put(None)
            call.push()
        assert list(call) == []


def test_what_another_thread_sends_leaves_while_the_one_that_receives_is_busy() -> None:
    has_arrived = threading.Event()

    def serve(messages: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        assert [bytes(next(messages)) for _ in range(3)] == [b"1", b"2", b"3"]
        has_arrived.set()
        yield _ASSIGN

    with _channel(serve) as channel, _call(UnthreadedCall, channel) as (call, outgoing):
        outgoing.put(StepPayload(b"1"))
        call.push()  # and nobody takes the event that it is on its way

        def send() -> None:
            for text in (b"2", b"3"):
                outgoing.put(StepPayload(text))
                call.push()

        thread = threading.Thread(target=send)
        thread.start()
        assert has_arrived.wait(SECONDS)
        thread.join()
        assert list(call) == [_ASSIGN]


@pytest.mark.parametrize("is_pushed_elsewhere", [False, True])
def test_what_has_arrived_does_not_wait_for_what_is_to_be_sent(is_pushed_elsewhere: bool) -> None:
    # The first is longer than what may be on its way unread, and the second stands behind it.
    lengths, may_read = [2**20 - 2**10, 1], threading.Event()

    def serve(messages: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        yield _ASSIGN
        assert may_read.wait(SECONDS), "the learner's message was not received"
        assert [len(next(messages)) for _ in lengths] == lengths
        yield _ASSIGN

    with _channel(serve) as channel, _call(UnthreadedCall, channel) as (call, outgoing):
        for length in lengths:
            outgoing.put(StepPayload(bytes(length)))
        thread = threading.Thread(target=call.push, daemon=True)
        if is_pushed_elsewhere:
            thread.start()
            events: Any = call._taking_events  # type: ignore[attr-defined]
            wait_until(events.locked)
        assert next(call) == _ASSIGN
        may_read.set()
        assert next(call) == _ASSIGN
        if is_pushed_elsewhere:
            thread.join(SECONDS)
        assert not thread.is_alive()
        assert list(call) == []


@_KINDS
def test_the_status_is_that_of_the_learner_and_stays(kind: Any) -> None:
    def serve(messages: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        next(messages)
        yield _ASSIGN
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "nö")

    with _channel(serve) as channel, _call(kind, channel) as (call, outgoing):
        outgoing.put(_HELLO)
        call.push()
        assert next(call) == _ASSIGN
        for _ in range(2):
            with pytest.raises(grpc.RpcError) as error:
                next(call)
            assert error.value.code() is grpc.StatusCode.FAILED_PRECONDITION  # type: ignore[attr-defined]
            assert error.value.details() == "nö"  # type: ignore[attr-defined]
        outgoing.put(_HELLO)
        call.push()  # to nobody any more


@_KINDS
def test_an_address_where_nobody_listens_is_unavailable(kind: Any) -> None:
    with (
        connect("127.0.0.1:1", max_message_bytes=2**10) as channel,
        _call(kind, channel) as (call, _),
        pytest.raises(grpc.RpcError) as error,
    ):
        next(call)
    assert error.value.code() is grpc.StatusCode.UNAVAILABLE  # type: ignore[attr-defined]
    assert "failed to connect to all addresses" in error.value.details()  # type: ignore[attr-defined]


@_KINDS
def test_the_end_is_heard_of_while_nobody_asks_and_what_came_before_it_is_kept(kind: Any) -> None:
    def serve(messages: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        next(messages)
        yield _ASSIGN
        assert may_end.wait(SECONDS)
        yield _ASSIGN
        context.abort(grpc.StatusCode.UNAVAILABLE, "back soon")

    may_end, has_ended = threading.Event(), threading.Event()
    with _channel(serve) as channel, _call(kind, channel) as (call, outgoing):
        outgoing.put(_HELLO)
        call.push()
        assert next(call) == _ASSIGN
        call.read_ahead(has_ended.set)
        may_end.set()
        if kind is UnthreadedCall:  # gRPC's own asks the learner for nothing before that
            assert has_ended.wait(SECONDS)
        assert next(call) == _ASSIGN
        with pytest.raises(grpc.RpcError, match="back soon"):
            next(call)
        assert has_ended.wait(SECONDS)


def test_a_call_has_no_thread_and_leaves_nothing() -> None:
    with _channel(_echo) as channel:
        before = set(threading.enumerate())
        with _call(UnthreadedCall, channel) as (call, outgoing):
            outgoing.put(_HELLO)
            call.push()
            assert next(call) == _ASSIGN
            served = [each for each in threading.enumerate() if each not in before]
            # The server's alone.
            assert {each.name.partition("-")[0] for each in served} <= {"ThreadPoolExecutor"}
        assert call._due == set()  # type: ignore[attr-defined]


# Sends a message longer than what may be on its way unread, and takes no event before its input
# ends: by then gRPC has to have read that the server reads, and written the rest.
_BUSY = """
import sys
from seedrl.wire.channel import connect
from seedrl.wire.framing import StepPayload
from seedrl.wire.learner_connection import Outgoing
from seedrl.wire.stream_call import UnthreadedCall
with connect(sys.argv[1], max_message_bytes=2**20) as channel:
    outgoing = Outgoing(2**10)
    call = UnthreadedCall(channel, (), outgoing)
    outgoing.put(StepPayload(bytes(2**20 - 2**10)))
    call.push()
    sys.stdin.read()
    assert len(list(call)) == 1
"""


@pytest.mark.skipif(not _IS_NATIVE, reason="of gRPC from 1.80 on, on Linux")
def test_grpc_reads_and_writes_while_nobody_takes_events() -> None:
    has_arrived = threading.Event()

    def serve(messages: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        next(messages)
        has_arrived.set()
        yield _ASSIGN

    with _served(serve) as address:
        # In a process of its own: the server's threads would read for it.
        command = [sys.executable, "-c", _BUSY, address]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
            is_native = has_arrived.wait(SECONDS)
            process.communicate()
        assert (is_native, process.returncode) == (True, 0)


def _opened(channel: grpc.Channel) -> type:
    """Of which kind the call is that this gRPC gives; it works."""
    outgoing = Outgoing(2**10)
    with contextlib.closing(open_call(channel, (), outgoing)) as call:
        outgoing.put(_HELLO)
        call.push()
        assert next(call) == _ASSIGN
        return type(call)


@pytest.mark.skipif(not _IS_NATIVE, reason="of gRPC from 1.80 on, on Linux")
def test_grpc_that_is_another_inside_has_its_own_call(monkeypatch: pytest.MonkeyPatch) -> None:
    class Passing(grpc.StreamStreamClientInterceptor):  # type: ignore[misc]
        def intercept_stream_stream(self, begin: Any, details: Any, requests: Any) -> Any:
            return begin(details, requests)

    with _channel(_echo) as channel:
        assert _opened(channel) is UnthreadedCall
        # A channel around another has not the same inside.
        assert _opened(grpc.intercept_channel(channel, Passing())) is ThreadedCall
        monkeypatch.setattr(grpc, "__version__", "1.79.1")
        assert _opened(channel) is ThreadedCall


@pytest.mark.skipif(not _IS_NATIVE, reason="of gRPC from 1.80 on, on Linux")
@pytest.mark.parametrize("absent", ["SendCloseFromClientOperation", "SegregatedCall"])
def test_grpc_that_lacks_what_a_call_needs_later_has_its_own_call(
    absent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "grpc._cython.cygrpc"
    inside = types.ModuleType(name)
    vars(inside).update(vars(importlib.import_module(name)))
    delattr(inside, absent)
    monkeypatch.setitem(sys.modules, name, inside)
    with _channel(_echo) as channel:
        assert _opened(channel) is ThreadedCall


# A signal arrives, whose handler raises, while the thread that receives waits in gRPC.
_INTERRUPTED = """
import os, signal, sys, threading, time
from seedrl.wire.channel import connect
from seedrl.wire.learner_connection import Outgoing
from seedrl.wire.stream_call import UnthreadedCall

def interrupt():
    while sys._current_frames()[main].f_code.co_name != "_take_event":
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGUSR1)

def stop(*_):
    raise KeyboardInterrupt

main = threading.get_ident()
signal.signal(signal.SIGUSR1, stop)
with connect(sys.argv[1], max_message_bytes=2**20) as channel:
    call = UnthreadedCall(channel, (), Outgoing(2**10))
    threading.Thread(target=interrupt).start()
    try:
        next(call)
    except KeyboardInterrupt:
        call.close()
        print("closed")
"""


@pytest.mark.skipif(not _IS_NATIVE, reason="of gRPC from 1.80 on, on Linux")
def test_a_call_can_be_closed_after_a_signal_has_interrupted_it() -> None:
    with _served(_echo) as address:
        command = [sys.executable, "-c", _INTERRUPTED, address]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    assert (done.returncode, done.stdout) == (0, "closed\n"), done.stderr
