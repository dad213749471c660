"""A bare gRPC echo: bytes one way, bytes back, and nothing else that either side does.

The server answers only while it is allowed to; its clients, `python -m learner.extras.bench.echo
ADDRESS MESSAGE_BYTES IN_FLIGHT`, keep N messages in flight and do nothing with the answers.
"""

import queue
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

_SERVICE, _METHOD = "seedrl.bench.Echo", "Connect"
_OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class EchoServer:
    """Answers every message with the same bytes. Owns a gRPC server, whose threads count."""

    def __init__(self, address: str, *, answer_bytes: int, max_streams: int):
        self.is_open = threading.Event()  # while it is set, messages are answered
        self.num_answered: list[int] = []  # by stream, each counted by that stream's thread
        self._answer = bytes(answer_bytes)
        self._lock = threading.Lock()  # of two streams that begin at once
        method: Any = grpc.stream_stream_rpc_method_handler(self._connect)
        self._server = grpc.server(ThreadPoolExecutor(max_streams), options=_OPTIONS)
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(_SERVICE, {_METHOD: method}),)
        )
        port = self._server.add_insecure_port(address)
        is_unix = address.startswith("unix:")
        self.address = address if is_unix else f"{address.rsplit(':', 1)[0]}:{port}"
        self._server.start()

    def stop(self) -> None:
        """Ends all streams."""
        self._server.stop(0.0).wait()
        self.is_open.set()

    def _connect(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        with self._lock:
            index = len(self.num_answered)
            self.num_answered.append(0)
        for _ in requests:
            if not self.is_open.is_set():
                self.is_open.wait()
            self.num_answered[index] += 1
            yield self._answer


def main(address: str, message_bytes: str, in_flight: str) -> None:
    """Sends until it is killed or the server goes away."""
    outgoing: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    message = bytes(int(message_bytes))
    for _ in range(int(in_flight)):
        outgoing.put(message)
    channel = grpc.insecure_channel(address, _OPTIONS)
    connect: Any = channel.stream_stream(f"/{_SERVICE}/{_METHOD}")
    # Each answer lets one more message go.
    for _ in connect(iter(outgoing.get, None), wait_for_ready=True):
        outgoing.put(message)


if __name__ == "__main__":
    main(*sys.argv[1:])
