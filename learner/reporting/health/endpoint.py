"""`/healthz` and `/metrics` over HTTP, for monitoring."""

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from learner.reporting.health.gauges import gauges
from learner.reporting.health.http_server import http_server
from learner.reporting.status import Status
from seedrl.errors import AddressInUseError

_logger = logging.getLogger(__name__)

# A status is written every second; one as old as this is of a learner that hangs.
_FRESH_SECONDS = 15.0
# To the end of its thread, which waits for no client.
_END_SECONDS = 2.0
_Start = Callable[[str, list[tuple[str, str]]], Any]


class Health(Collector):
    """Answers with the newest status. Owns a port, and threads, until `close`.

    It reads what others have made, and is never waited for by them.
    """

    def __init__(self, bind: str, clock: Callable[[], float] = time.monotonic) -> None:
        """`bind` is `host:port`; port 0 takes a free one. Raises AddressInUseError."""
        host, _, port = bind.rpartition(":")
        self._clock = clock
        self._status: Status | None = None
        self._looked = clock()
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        self._metrics = make_wsgi_app(registry)
        try:
            self._server = http_server(host.strip("[]"), int(port), self._answer)
        except OSError as error:
            raise AddressInUseError(
                f"cannot serve on {bind} ({error.strerror}); choose another logging.health_bind"
            ) from error
        self.port = self._server.server_port
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="health", daemon=True
        )
        self._thread.start()

    def look(self, status: Status) -> None:
        """Takes the newest status."""
        self._status, self._looked = status, self._clock()

    def collect(self) -> Iterator[Metric]:
        """What `/metrics` shows; called by threads of clients."""
        if (status := self._status) is not None:
            yield from gauges(status)

    def close(self) -> None:
        """Ends the thread."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(_END_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _answer(self, environ: dict[str, Any], start: _Start) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path == "/metrics":
            answer: Iterable[bytes] = self._metrics(environ, start)
            return answer
        if path != "/healthz":
            start("404 Not Found", [("Content-Type", "text/plain")])
            return [b"/healthz and /metrics\n"]
        status = self._status
        state = "starting" if status is None else status.state
        is_fresh = self._clock() - self._looked < _FRESH_SECONDS
        is_well = is_fresh and state not in ("stopping", "finished")
        code = "200 OK" if is_well else "503 Service Unavailable"
        start(code, [("Content-Type", "application/json")])
        return [json.dumps({"state": state if is_fresh else "hangs"}).encode() + b"\n"]
