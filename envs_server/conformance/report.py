"""A report in words, or as JSON."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from envs_server.conformance.back_end import Play
from envs_server.conformance.check import Plan, Report
from envs_server.conformance.findings import Finding
from envs_server.conformance.rows import Episode
from seedrl.spec_json import encode_spec
from seedrl.specs import ActionSpec, DiscreteSpec


def text(name: str, plan: Plan, report: Report) -> str:
    """Lines for people: errors and notes, then the verdict."""
    return "\n".join(_lines(name, plan, report))


def as_json(name: str, plan: Plan, report: Report) -> str:
    """One JSON object with the same."""
    content: dict[str, Any] = {
        "environment": name,
        "passes": report.passes,
        "errors": [_as_dict(finding) for finding in report.findings.errors],
        "notes": [_as_dict(finding) for finding in report.findings.notes],
        "back_end": plan.back_end,
        "num_envs": plan.num_envs,
    }
    if report.play:
        content |= _measured(report.play)
    return json.dumps(content)


def _lines(name: str, plan: Plan, report: Report) -> Iterator[str]:
    findings = report.findings
    yield from (finding.line() for finding in [*findings.errors, *findings.notes])
    if not report.passes:
        count = len(findings.errors)
        rules = "a rule" if count == 1 else f"{count} rules"
        skipped = "" if report.play else "; what follows was not checked: fix it, then repeat"
        yield f"{name} breaks {rules}{skipped}"
        return
    assert report.play, "it is missing only if there are errors"
    yield f"{name} passes"
    yield from _summary(plan, report.play)


def _summary(plan: Plan, play: Play) -> Iterator[str]:
    leaves = ", ".join(
        f"{path.removeprefix('observation.')} {leaf.dtype}{list(leaf.shape)}"
        for path, leaf in play.spec.leaves()
    )
    yield f"  observation  {leaves.removeprefix('observation ')}"
    yield f"  actions      {_actions(play.spec.action)}"
    yield (
        f"  played       {plan.num_envs} x {plan.num_steps:,} steps on the {plan.back_end} back "
        f"end, {play.message_bytes:,} bytes a message"
    )
    yield f"  episodes     {_episodes(play.episodes)}"
    if play.metrics:
        yield f"  info         {', '.join(play.metrics)}: reported if named in environment.metrics"
    yield f"  speed        {play.num_steps / play.seconds:,.0f} steps/s in one process"


def _actions(action: ActionSpec) -> str:
    if isinstance(action, DiscreteSpec):
        return str(action.num_actions)
    return f"box{list(action.shape)}, {_range(action.low)} (low), {_range(action.high)} (high)"


def _episodes(ended: Sequence[Episode]) -> str:
    if not ended:
        return "none ended"
    terminated = sum(episode.is_terminated for episode in ended)
    lengths = _range([episode.length for episode in ended])
    scores = _range([episode.score for episode in ended])
    return (
        f"{len(ended)} ended, {terminated} terminated and {len(ended) - terminated} truncated; "
        f"length {lengths}, return {scores}"
    )


def _range(values: Sequence[float]) -> str:
    if min(values) == max(values):
        return f"{values[0]:g}"
    return f"{min(values):g} to {max(values):g} (mean {np.mean(values):.4g})"


def _measured(play: Play) -> dict[str, Any]:
    return {
        "spec": json.loads(encode_spec(play.spec)),
        "message_bytes": play.message_bytes,
        "num_steps": play.num_steps,
        "metrics": play.metrics,
        "steps_per_second": play.num_steps / play.seconds,
        "episodes": [episode._asdict() for episode in play.episodes],
    }


def _as_dict(finding: Finding) -> dict[str, Any]:
    return {
        "rule": finding.rule.name,
        "text": finding.text,
        "times": finding.times,
        "remedy": finding.rule.remedy,
    }
