"""`/metrics` over HTTP, for Prometheus and for probes, by the server of prometheus_client."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from learner.report.status import Status
from seedrl.errors import AddressInUseError
from seedrl.timing import GRACE_SECONDS

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
    # one. A probe needs no answer of its own: the watchdog ends a process that hangs.

    def __init__(self, bind: str) -> None:
        """`bind` is `host:port`; port 0 takes a free one. Raises AddressInUseError."""
        host, _, port = bind.rpartition(":")
        self._status: Status | None = None
        # Of its own: the default one has the process's metrics, too.
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        try:
            self._server, self._thread = start_http_server(int(port), host.strip("[]"), registry)
        except OSError as error:
            raise AddressInUseError(
                f"cannot serve on {bind} ({error.strerror}); choose another logging.health_bind"
            ) from error
        self.port = self._server.server_port

    def look(self, status: Status) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        """What `/metrics` shows; called by threads of clients."""
        if (status := self._status) is not None:
            yield from gauges(status)

    def close(self) -> None:
        """Ends the thread, and waits for no client."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(GRACE_SECONDS)


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
