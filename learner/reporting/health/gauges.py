"""A run's status as numbers that Prometheus understands."""

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily

from learner.reporting.status import Status

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
