"""The learning curve of a run as a picture."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeGuard

_ROLES = ("training", "evaluation")


def draw(metrics_jsonl: Path, png: Path) -> None:
    """Draws training and evaluation return against environment steps.

    Lines that are torn (a process was killed while writing), and lines without a return, are
    skipped; without any, the axes stay empty.

    Args:
      metrics_jsonl: the run's metrics, one JSON object a line; it may be missing.
      png: the picture, written over.
    """
    # Slow to import, and needed once. Without pyplot: no window system, no global state.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for role in _ROLES:
        steps, returns = points(metrics_jsonl, role)
        axes.plot(steps, returns, label=role, marker="." if role == "evaluation" else "")
    axes.set(xlabel="training environment steps", ylabel="mean return of an episode")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(png, dpi=120)


def points(metrics_jsonl: Path, role: str) -> tuple[list[float], list[float]]:
    """Environment steps, and the mean return of `role` (training or evaluation) there."""
    steps, returns = [], []
    for line in _lines(metrics_jsonl):
        step, value = line.get("env_steps"), line.get(f"return/{role}")
        if _is_number(step) and _is_number(value):
            steps.append(float(step))
            returns.append(float(value))
    return steps, returns


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    if not path.exists():
        return
    for text in path.read_text(errors="replace").splitlines():
        try:
            line = json.loads(text)
        except json.JSONDecodeError:
            continue
        if isinstance(line, dict):
            yield line


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and math.isfinite(value)
