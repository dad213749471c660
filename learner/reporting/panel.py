"""What a person sees of a run that is under way: rows of a panel, or one line."""

import math
from collections.abc import Iterator, Mapping

from learner.reporting.metric_names import METRICS, PERCENTILES, group
from learner.reporting.status import EvaluationStatus, Status
from learner.reporting.wording import binding, duration, environments, score
from seedrl.agents.metric_meanings import TELLING

_MOST_OWN = 3
_OWN = [*TELLING, *(metric.name for metric in METRICS if metric.group == "agent")]

# A metric and its format; what is missing is left out.
_Cell = tuple[str, str]
CELLS: dict[str, tuple[_Cell, ...]] = {
    "pace": (
        ("replay_ratio", "ratio {:.2f}"),
        ("replay_ratio_target", "of {:g}"),
        ("policy_lag_updates", "lag {:.1f} updates"),
        ("serving_lag_updates", "of which {:.1f} in serving"),
    ),
    "learning": (("loss", "loss {:.3g}"), ("gradient_norm", "gradient {:.3g}")),
    "acting": (("batch_fill", "batches {:.0%} full"), ("inference_ms_p95", "p95 {:.1f} ms")),
    "replay": (("replay_sequences", "{:,.0f} sequences"),),
    "line": (
        ("env_steps", "{:,.0f} steps"),
        ("env_steps_per_second", "{:,.0f}/s"),
        ("updates", "{:,.0f} updates"),
        ("replay_ratio", "ratio {:.2f}"),
        ("policy_lag_updates", "lag {:.1f}"),
        ("loss", "loss {:.3g}"),
        ("skipped_updates", "{:,.0f} skipped"),
    ),
}


def rows(status: Status, metrics: Mapping[str, float]) -> Iterator[tuple[str, str]]:
    """The panel's rows: label and text."""
    yield "progress", _progress(status, metrics)
    yield "return", "   ".join(_returns(status, metrics))
    yield "env servers", _env_servers(status)
    updates = f"{status.updates:,}   {status.updates_per_second:,.1f}/s"
    if status.skipped_updates:
        updates += f"   {status.skipped_updates:,} skipped"
    yield "updates", updates
    if text := _now(status, metrics):
        yield "now", text
    per_second = metrics.get("frames_per_second", math.nan)
    if per_second != metrics.get("env_steps_per_second") and math.isfinite(per_second):
        yield "frames", f"{per_second:,.0f}/s"
    for label in ("pace", "learning", "acting", "replay"):
        cells = [form.format(value) for form, value in _known(CELLS[label], metrics)]
        if label == "learning":
            cells += [f"{name} {metrics[name]:.3g}" for name in own_numbers(metrics)]
        if cells:
            yield label, "   ".join(cells)


def line(metrics: Mapping[str, float], status: Status | None) -> str:
    """The same, short, where there is no terminal; without a status only the numbers."""
    cells = [form.format(value) for form, value in _known(CELLS["line"], metrics)]
    if status is None:
        return "  ".join(cells)
    if "env_steps" in metrics:
        cells[0] += f" ({metrics['env_steps'] / status.total_steps:.0%})"
    if text := _state(status):
        cells.append(text)
    return "  ".join((*cells, *_returns(status, metrics, short=True)))


def own_numbers(metrics: Mapping[str, float]) -> list[str]:
    """Up to three of the agent's: those that nobody here knows first, then the most telling."""
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


def _known(cells: tuple[_Cell, ...], metrics: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    for name, form in cells:
        value = metrics.get(name, math.nan)
        if math.isfinite(value) and (value or name != "skipped_updates"):
            yield form, value


def _progress(status: Status, metrics: Mapping[str, float]) -> str:
    share = status.env_steps / status.total_steps
    text = f"{status.env_steps:,} of {status.total_steps:,} steps ({share:.0%})"
    text += f"   {status.env_steps_per_second:,.0f}/s"
    # Over an interval of metrics: from one second to the next it would jump.
    rate = metrics.get("env_steps_per_second", 0.0)
    left = status.total_steps - status.env_steps
    return (
        f"{text}   {duration(left / rate)} left"
        if rate > 0 and left > 0 and not status.reason
        else text
    )


def _returns(status: Status, metrics: Mapping[str, float], *, short: bool = False) -> Iterator[str]:
    if "return/training" in metrics:
        yield f"training {score(metrics['return/training'])}"
    if (last := status.last_evaluation) is not None:
        yield f"evaluation {score(last.mean_return)}"
    if short:
        return
    best = status.best_evaluation
    if best is not None and last is not None and best.mean_return > last.mean_return:
        yield f"best {score(best.mean_return)} at {best.env_steps:,} steps"
    if status.target_return is not None:
        yield f"target {status.target_return:g}"


def _env_servers(status: Status) -> str:
    present = [server for server in status.env_servers if server.state != "left"]
    lanes = (status.training_slots, status.evaluation_slots)
    cells = [
        f"{len(present)} with {environments(sum(server.environments for server in present))}",
        f"{lanes[0].live} of {lanes[0].total} train",
        f"{lanes[1].live} of {lanes[1].total} evaluate",
    ]
    for text, number in (
        ("waited for", sum(lane.waiting for lane in lanes)),
        ("hung", sum(lane.hung for lane in lanes)),
        ("quarantined", sum(server.quarantined for server in present)),
        ("failures", sum(server.failures for server in status.env_servers)),
    ):
        if number:
            cells.append(f"{number} {text}")
    return "   ".join(cells)


def _state(status: Status) -> str:
    """What keeps the run from doing what it is for; empty if nothing does."""
    if status.state == "compiling":
        seconds = status.time_seconds - status.state_since_seconds
        return f"compiling for {seconds:.0f} s"
    return f"waiting: {status.waiting_for}" if status.waiting_for else ""


def _now(status: Status, metrics: Mapping[str, float]) -> str:
    if status.reason:
        return status.reason
    if status.state == "evaluating":
        return "fresh episodes must confirm the target"
    return _state(status) or binding(metrics)


def evaluation_text(played: EvaluationStatus | None) -> str:
    """A round of evaluation in words."""
    if played is None:
        return "none"
    text = f"{score(played.mean_return)} over {played.episodes} episodes"
    return f"{text}, at {played.env_steps:,} environment steps"
