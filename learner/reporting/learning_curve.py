"""The learning curve of a run as a picture; also a script, which draws in a process of its own."""

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeGuard


def draw_apart(
    metrics_jsonl: Path, png: Path, *, title: str, target: float | None, seconds: float
) -> str:
    """Draws in a process of its own, which may take `seconds`; for the rest see `draw`.

    Returns why there is no picture, in words; "" if there is one. On a busy machine drawing takes a
    minute, for which an end of a run must not wait.
    """
    # By its path: nothing else of this package is imported.
    words = [str(metrics_jsonl), str(png), title, "" if target is None else repr(target)]
    try:
        done = subprocess.run(
            [sys.executable, "-P", __file__, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        return f"it would take longer than {seconds:.0f} s"
    except OSError as error:
        return str(error)
    if not done.returncode:
        return ""
    # One that was killed says nothing.
    lines = [f"what draws it ended with {done.returncode}", *done.stderr.split("\n")]
    return next(line.strip() for line in reversed(lines) if line.strip())


def draw(metrics_jsonl: Path, png: Path, *, title: str = "", target: float | None = None) -> None:
    """Draws returns against environment steps.

    Of training episodes the mean of each interval, between the lowest and the highest; of each
    round of evaluation the mean with its standard deviation. Lines that are torn (a process was
    killed while writing), and lines without a return, are skipped: without any the axes are empty.

    Args:
      metrics_jsonl: the run's metrics, one JSON object a line; it may be missing.
      png: the picture, written over.
      title: over the picture.
      target: the return that ends the run.
    """
    # Slow to import, and needed once. Without pyplot: no window system, no global state.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    lines = _lines(metrics_jsonl)
    steps, returns, low, high = columns(
        lines, *(f"return/training{suffix}" for suffix in ("", "_min", "_max"))
    )
    axes.plot(steps, returns, label="training episodes: mean and extremes", color="C0")
    axes.fill_between(steps, low, high, color="C0", alpha=0.15, linewidth=0)
    rounds = [line for line in lines if line.get("kind") == "evaluation"]
    steps, means, deviations = columns(rounds, "mean_return", "standard_deviation")
    axes.errorbar(
        steps, means, deviations, label="evaluation: mean and deviation", color="C1", marker="."
    )
    if target is not None:
        axes.axhline(target, label=f"target {target:g}", color="black", linestyle="--", linewidth=1)
    axes.set(xlabel="training environment steps", ylabel="return of an episode", title=title)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(png, dpi=120)


def columns(lines: list[dict[str, Any]], *names: str) -> tuple[list[float], ...]:
    """Environment steps and these numbers, of the lines that have the first; NaN for the others."""
    rows = [
        [line["env_steps"], *(line.get(name) for name in names)]
        for line in lines
        if _is_number(line.get("env_steps")) and _is_number(line.get(names[0]))
    ]
    found = [[float(value) if _is_number(value) else math.nan for value in row] for row in rows]
    return tuple(map(list, zip(*found, strict=True))) or tuple([] for _ in (0, *names))


def _lines(path: Path) -> list[dict[str, Any]]:
    """Those that are part of the run: what a session did not resume from is not."""
    kept: list[dict[str, Any]] = []
    for line in _objects(path):
        if line.get("kind") != "session":
            kept.append(line)
        elif line.get("is_begun_anew"):
            kept = []
        elif _is_number(steps := line.get("env_steps")):
            kept = [each for each in kept if not _is_later(each, steps)]
    return kept


def _is_later(line: dict[str, Any], steps: float) -> bool:
    return _is_number(line.get("env_steps")) and line["env_steps"] > steps


def _objects(path: Path) -> Iterator[dict[str, Any]]:
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


if __name__ == "__main__":
    _metrics, _png, _title, _target = sys.argv[1:]
    draw(Path(_metrics), Path(_png), title=_title, target=float(_target) if _target else None)
