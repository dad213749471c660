"""`/healthz` and `/metrics` over HTTP, for monitoring, by the server of prometheus_client."""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from learner.report.status import FRESH_SECONDS, Status
from seedrl.errors import AddressInUseError
from seedrl.timing import GRACE_SECONDS

_Start = Callable[[str, list[tuple[str, str]]], Any]
# Numbers of the status or of its metrics; those that are null are left out. What env servers call
# themselves is in no name and no label: they could say anything.
NUMBERS = (
    *("env_steps", "total_steps", "updates", "skipped_updates", "env_steps_per_second"),
    *("updates_per_second", "replay_ratio", "policy_lag_updates", "acting_waits_share"),
    *("learning_waits_share", "target_return", "elapsed_seconds"),
)
SLOTS = ("total", "live", "waiting", "hung")


class Health(Collector):
    """Answers with the newest status. Owns a port, and a thread, until `close`."""

    # The threads of clients only read the status that `look` replaces; no other thread waits for
    # one.

    def __init__(self, bind: str, clock: Callable[[], float] = time.monotonic) -> None:
        """`bind` is `host:port`; port 0 takes a free one. Raises AddressInUseError."""
        host, _, port = bind.rpartition(":")
        self._clock = clock
        self._status: Status | None = None
        self._looked = clock()
        # Of its own: the default one has the process's metrics, too.
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        try:
            self._server, self._thread = start_http_server(int(port), host.strip("[]"), registry)
        except OSError as error:
            raise AddressInUseError(
                f"cannot serve on {bind} ({error.strerror}); choose another logging.health_bind"
            ) from error
        self._metrics: Any = self._server.get_app()
        self._server.set_app(self._answer)  # its own application has no /healthz
        self.port = self._server.server_port

    def look(self, status: Status) -> None:
        self._status, self._looked = status, self._clock()

    def collect(self) -> Iterator[Metric]:
        """What `/metrics` shows; called by threads of clients."""
        if (status := self._status) is not None:
            yield from gauges(status)

    def close(self) -> None:
        """Ends the thread, and waits for no client."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(GRACE_SECONDS)

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
        is_fresh = self._clock() - self._looked < FRESH_SECONDS
        # A run that waits for env servers is well: restarting its learner would not help.
        is_well = is_fresh and state not in ("stopping", "finished")
        code = "200 OK" if is_well else "503 Service Unavailable"
        start(code, [("Content-Type", "application/json")])
        return [json.dumps({"state": state if is_fresh else "hangs"}).encode() + b"\n"]


def gauges(status: Status) -> Iterator[GaugeMetricFamily]:
    values = {name: getattr(status, name, status.metrics.get(name)) for name in NUMBERS}
    values["training_return"] = status.metrics.get("return/training")
    if status.last_evaluation is not None:
        values["evaluation_return"] = status.last_evaluation.mean_return
    values["env_servers"] = sum(server.state != "left" for server in status.env_servers)
    for name, value in values.items():
        if value is not None:
            yield GaugeMetricFamily(f"seedrl_{name}", "See docs/metrics.md.", value)
    slots = GaugeMetricFamily("seedrl_slots", "Slots by role and state.", labels=["role", "state"])
    for role, of_role in (
        ("training", status.training_slots),
        ("evaluation", status.evaluation_slots),
    ):
        for state in SLOTS:
            slots.add_metric([role, state], getattr(of_role, state))
    yield slots
