"""A run for a person: the rows of the panel on a terminal, or one line for each interval."""

import math
from collections.abc import Iterator, Mapping

from learner.report.metric_table import METRICS, PERCENTILES, group
from learner.report.status import EvaluationStatus, Status
from seedrl.agents.metric_meanings import TELLING

_MOST_OWN = 3
_SIGNIFICANT = 4
_LARGE = 1e9
# Below this share of the time neither side counts as waiting.
_LEAST_SHARE = 0.05
_OWN = [*TELLING, *(metric.name for metric in METRICS if metric.group == "agent")]

# Metrics with their formats; a missing one is left out.
CELLS: dict[str, dict[str, str]] = {
    "pace": {
        "replay_ratio": "ratio {:.2f}",
        "replay_ratio_target": "of {:g}",
        "policy_lag_updates": "lag {:.1f} updates",
        "serving_lag_updates": "of which {:.1f} in serving",
    },
    "learning": {"loss": "loss {:.3g}", "gradient_norm": "gradient {:.3g}"},
    "acting": {"batch_fill": "batches {:.0%} full", "inference_ms_p95": "p95 {:.1f} ms"},
    "replay": {"replay_sequences": "{:,.0f} sequences"},
    "line": {
        "env_steps": "{:,.0f} steps",
        "env_steps_per_second": "{:,.0f}/s",
        "updates": "{:,.0f} updates",
        "replay_ratio": "ratio {:.2f}",
        "policy_lag_updates": "lag {:.1f}",
        "loss": "loss {:.3g}",
        "skipped_updates": "{:,.0f} skipped",
    },
}


def rows(status: Status, metrics: Mapping[str, float]) -> Iterator[tuple[str, str]]:
    """The panel's rows: label and text."""
    yield "progress", _progress(status, metrics)
    yield "return", "   ".join(_returns(status, metrics))
    yield "env servers", _env_servers(status)
    updates = f"{status.updates:,}   {status.updates_per_second:,.1f}/s"
    if skipped := metrics.get("skipped_updates"):
        updates += f"   {skipped:,.0f} skipped"
    yield "updates", updates
    if text := status.reason or _state(status) or binding(metrics):
        yield "now", text
    frames = metrics.get("frames_per_second", math.nan)
    if frames != metrics.get("env_steps_per_second") and math.isfinite(frames):
        yield "frames", f"{frames:,.0f}/s"
    for label in ("pace", "learning", "acting", "replay"):
        cells = list(_cells(label, metrics))
        if label == "learning":
            cells += [f"{name} {metrics[name]:.3g}" for name in own_numbers(metrics)]
        if cells:
            yield label, "   ".join(cells)


def line(metrics: Mapping[str, float], status: Status | None) -> str:
    """The same, short, if there is no terminal; without a status only the numbers."""
    cells = list(_cells("line", metrics))
    if status is None:
        return "  ".join(cells)
    if "env_steps" in metrics:
        cells[0] += f" ({metrics['env_steps'] / status.total_steps:.0%})"
    if text := _state(status):
        cells.append(text)
    return "  ".join((*cells, *_returns(status, metrics, is_short=True)))


def own_numbers(metrics: Mapping[str, float]) -> list[str]:
    """Up to three metrics of the agent: unknown names first, then the most telling ones."""
    suffixes = ("_per_second", *(f"_p{rank}" for rank in PERCENTILES))
    own = [
        name
        for name, value in metrics.items()
        if group(name) == "agent"
        and "/" not in name
        and not name.endswith(suffixes)
        and math.isfinite(value)
    ]
    return sorted(own, key=lambda name: _OWN.index(name) if name in _OWN else -1)[:_MOST_OWN]


def _cells(label: str, metrics: Mapping[str, float]) -> Iterator[str]:
    for name, form in CELLS[label].items():
        value = metrics.get(name, math.nan)
        if math.isfinite(value) and (value or name != "skipped_updates"):
            yield form.format(value)


def _progress(status: Status, metrics: Mapping[str, float]) -> str:
    share = status.env_steps / status.total_steps
    text = f"{status.env_steps:,} of {status.total_steps:,} steps ({share:.0%})"
    text += f"   {status.env_steps_per_second:,.0f}/s"
    # Over an interval of metrics: from one second to the next it would jump.
    rate = metrics.get("env_steps_per_second", 0.0)
    left = status.total_steps - status.env_steps
    if rate > 0 and left > 0 and not status.reason:
        text += f"   {duration(left / rate)} left"
    return text


def _returns(
    status: Status, metrics: Mapping[str, float], *, is_short: bool = False
) -> Iterator[str]:
    if "return/training" in metrics:
        yield f"training {score(metrics['return/training'])}"
    if (last := status.last_evaluation) is not None:
        yield f"evaluation {score(last.mean_return)}"
    if is_short:
        return
    best = status.best_evaluation
    if best is not None and last is not None and best.mean_return > last.mean_return:
        yield f"best {score(best.mean_return)} at {best.env_steps:,} steps"
    if status.target_return is not None:
        yield f"target {status.target_return:g}"


def _env_servers(status: Status) -> str:
    present = [server for server in status.env_servers if server.state != "left"]
    roles = (status.training_slots, status.evaluation_slots)
    cells = [
        f"{len(present)} with {sum(server.environments for server in present)} environments",
        f"{roles[0].live} of {roles[0].total} train",
        f"{roles[1].live} of {roles[1].total} evaluate",
    ]
    for text, number in (
        ("waited for", sum(slots.waiting for slots in roles)),
        ("hung", sum(slots.hung for slots in roles)),
        ("disabled", sum(server.quarantined for server in present)),
        ("failures", sum(server.failures for server in status.env_servers)),
    ):
        if number:
            cells.append(f"{number} {text}")
    return "   ".join(cells)


def _state(status: Status) -> str:
    """What delays the run at present; empty if nothing does."""
    if status.state == "compiling":
        return f"compiling for {status.time_seconds - status.state_since_seconds:.0f} s"
    if status.waiting_for:
        return f"waiting: {status.waiting_for}"
    if (playing := status.confirmation) is None:
        return ""
    text = f"confirming the target: {playing.ended} of {playing.episodes} episodes"
    if playing.mean_return is not None:
        text += f", mean {score(playing.mean_return)}"
    return f"{text}, on {playing.slots} slot{'s' * (playing.slots != 1)}"


def evaluation_text(played: EvaluationStatus | None) -> str:
    """A round of evaluation in words."""
    if played is None:
        return "none"
    text = f"{score(played.mean_return)} over {played.episodes} episodes"
    return f"{text}, at {played.env_steps:,} environment steps"


def duration(seconds: float) -> str:
    """`1:02:03`."""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"


def score(value: float) -> str:
    """A return with four significant digits, so that 0.95 and 1 differ, and 475 and 480."""
    if not math.isfinite(value) or abs(value) >= _LARGE:
        return f"{value:.{_SIGNIFICANT}g}"
    before_point = 1 if abs(value) < 1 else int(math.log10(abs(value))) + 1
    return f"{value:,.{max(0, _SIGNIFICANT - before_point)}f}"


def binding(metrics: Mapping[str, float]) -> str:
    """Which side waits for the other, in words; empty if that is not measured."""
    acting = metrics.get("acting_waits_share")
    learning = metrics.get("learning_waits_share")
    if acting is None or learning is None:
        return ""
    if max(acting, learning) < _LEAST_SHARE:
        return "neither waits"
    if acting > learning:
        return f"environments wait for learning {acting:.0%} of the time: learning binds"
    return f"learning waits for environments {learning:.0%} of the time: sampling binds"
