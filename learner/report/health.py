"""`/healthz` and `/metrics` over HTTP, for monitoring, by the server of prometheus_client."""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from learner.report.status import Status
from seedrl.errors import AddressInUseError

# A status is written every second; one as old as this is of a learner that hangs.
_FRESH_SECONDS = 15.0
# To the end of its thread, which waits for no client.
_END_SECONDS = 2.0
_Start = Callable[[str, list[tuple[str, str]]], Any]
# Fields of Status that are numbers, and what they are called there; those that are null are left
# out. What env servers call themselves is in no name and no label: they could say anything.
_FIELDS = {
    "env_steps": "Training environment steps of the run.",
    "total_steps": "Training environment steps after which the run ends.",
    "updates": "Updates of the run.",
    "skipped_updates": "Updates that were not finite.",
    "env_steps_per_second": "Training environment steps over the last second.",
    "updates_per_second": "Updates over the last second.",
    "replay_ratio": "Trained steps for each environment step.",
    "policy_lag_updates": "Updates between acting and learning.",
    "acting_waits_share": "Share of time in which acting waits for learning.",
    "learning_waits_share": "Share of time in which learning waits for environments.",
    "training_return": "Mean return of the training episodes that ended last.",
    "target_return": "Mean return at which the run ends.",
    "elapsed_seconds": "Time of the run, over all of its sessions.",
}
_METRICS = {"training_return": "return/training"}
_SLOTS = ("total", "live", "waiting", "hung")


class Health(Collector):
    """Answers with the newest status. Owns a port, and threads, until `close`.

    Clients have threads of their own, which no other thread waits for: `look` only replaces the
    status that they read.
    """

    def __init__(self, bind: str, clock: Callable[[], float] = time.monotonic) -> None:
        """`bind` is `host:port`; port 0 takes a free one. Raises AddressInUseError."""
        host, _, port = bind.rpartition(":")
        self._clock = clock
        self._status: Status | None = None
        self._looked = clock()
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        try:
            self._server, self._thread = start_http_server(int(port), host.strip("[]"), registry)
        except OSError as error:
            raise AddressInUseError(
                f"cannot serve on {bind} ({error.strerror}); choose another logging.health_bind"
            ) from error
        self._metrics: Any = self._server.get_app()
        self._server.set_app(self._answer)
        self.port = self._server.server_port

    def look(self, status: Status) -> None:
        """Takes the newest status."""
        self._status, self._looked = status, self._clock()

    def collect(self) -> Iterator[Metric]:
        """What `/metrics` shows; called by threads of clients."""
        if (status := self._status) is not None:
            yield from gauges(status)

    def close(self) -> None:
        """Ends the thread, and waits for no client."""
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


def gauges(status: Status) -> Iterator[GaugeMetricFamily]:
    """All gauges of a status."""
    for field, meaning in _FIELDS.items():
        value = getattr(status, field, status.metrics.get(_METRICS.get(field, field)))
        if value is not None:
            yield GaugeMetricFamily(f"seedrl_{field}", meaning, value)
    if status.last_evaluation is not None:
        mean = status.last_evaluation.mean_return
        yield GaugeMetricFamily("seedrl_evaluation_return", "Mean of the newest round.", mean)
    present = sum(server.state != "left" for server in status.env_servers)
    yield GaugeMetricFamily("seedrl_env_servers", "Env servers that are there.", present)
    slots = GaugeMetricFamily("seedrl_slots", "Slots by role and state.", labels=["role", "state"])
    for role in ("training", "evaluation"):
        for state in _SLOTS:
            slots.add_metric([role, state], getattr(getattr(status, f"{role}_slots"), state))
    yield slots
