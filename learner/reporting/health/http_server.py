"""An HTTP server that no client holds up: neither for others nor at its end."""

import contextlib
import socket
import socketserver
import time
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
from wsgiref.types import WSGIApplication

# For a client to send its request and to take the answer, in all.
_CLIENT_SECONDS = 2.0
# Each has a thread; the oldest makes room for the newest.
_MOST_CLIENTS = 8


def http_server(host: str, port: int, answer: WSGIApplication) -> WSGIServer:
    """Bound, of either family of addresses. Raises OSError if that cannot be done."""
    kind = _Server6 if ":" in host else _Server
    return make_server(host, port, answer, kind, _Quiet)


class _Quiet(WSGIRequestHandler):
    def log_message(self, *_: object) -> None:
        """Says nothing: a probe arrives every few seconds."""


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = 64  # of those that connect at one moment: beyond it they wait a second

    def __init__(self, *args: Any) -> None:
        # Since when, in the order of their arrival. Threads of clients only remove their own.
        self._clients: dict[socket.socket, float] = {}
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        """In the server's thread."""
        if len(self._clients) >= _MOST_CLIENTS:
            self._end(next(iter(self._clients.copy())))
        self._clients[request] = time.monotonic()
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """In the server's thread, twice a second and after each client has arrived."""
        now = time.monotonic()
        for request, since in self._clients.copy().items():
            if now - since > _CLIENT_SECONDS:
                self._end(request)

    def shutdown_request(self, request: Any) -> None:
        """In the client's thread: it has been answered, or has gone."""
        self._clients.pop(request, None)
        super().shutdown_request(request)

    def server_close(self) -> None:
        """Ends all clients and waits for none."""
        super().server_close()
        for request in self._clients.copy():
            self._end(request)

    def handle_error(self, *_: object) -> None:
        """Of a client that went away, or sent garbage, nothing is said either."""

    def _end(self, request: socket.socket) -> None:
        """Makes the client's thread find its connection closed."""
        self._clients.pop(request, None)
        with contextlib.suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)


class _Server6(_Server):
    address_family = socket.AF_INET6
