"""The learning curve of a run as a picture."""

import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from learner.report.history import History


def draw_within(
    seconds: float, metrics_jsonl: Path, png: Path, *, title: str, target: float | None
) -> str:
    """Draws in a thread of its own, which may take `seconds`; see `draw`.

    Returns why there is no picture, in words; "" if there is one. On a busy machine drawing takes a
    minute, for which the end of a run must not wait.
    """
    problems: list[str] = []

    def work() -> None:
        try:
            draw(metrics_jsonl, png, title=title, target=target)
        except Exception as error:
            problems.append(f"{type(error).__name__}: {error}")

    thread = threading.Thread(target=work, name="learning curve", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        return f"it would take longer than {seconds:.0f} s"
    return "".join(problems)


def draw(metrics_jsonl: Path, png: Path, *, title: str = "", target: float | None = None) -> None:
    """Draws returns against environment steps.

    Of training episodes the mean of each interval, between the lowest and the highest; of each
    round of evaluation the mean with its standard deviation. Damaged lines are skipped; without any
    return the axes are empty.

    Args:
      metrics_jsonl: the run's metrics, one JSON object a line; it may be missing.
      png: the picture, which is replaced.
      title: over the picture.
      target: the return that ends the run.
    """
    # Slow to import, and needed once. Without pyplot: no window system, no global state.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    history = History().read(metrics_jsonl)
    columns = history.columns()
    steps, returns, low, high = _rows(
        columns, *(f"return/training{suffix}" for suffix in ("", "_min", "_max"))
    )
    axes.plot(steps, returns, label="training episodes: mean and extremes", color="C0")
    axes.fill_between(steps, low, high, color="C0", alpha=0.15, linewidth=0)
    names = ("env_steps", "mean_return", "standard_deviation")
    rounds = {name: [played.get(name) for played in history.rounds] for name in names}
    steps, means, deviations = _rows(rounds, *names[1:])
    axes.errorbar(
        steps,
        means,
        deviations,
        label="evaluation: mean and deviation",
        color="C1",
        marker=".",
    )
    if target is not None:
        axes.axhline(target, label=f"target {target:g}", color="black", linestyle="--", linewidth=1)
    axes.set(xlabel="training environment steps", ylabel="return of an episode", title=title)
    axes.grid(alpha=0.3)
    axes.legend()
    # Whole or not at all: the process may end meanwhile.
    new = png.with_name(f".{png.name}")
    figure.savefig(new, dpi=120, format="png")
    os.replace(new, png)


def _rows(columns: Mapping[str, Sequence[float | None]], *names: str) -> list[np.ndarray]:
    """Environment steps and these columns, without the rows that lack the first; NaN for gaps."""
    empty = [None] * len(columns["env_steps"])
    found = [np.array(columns.get(name, empty), np.float64) for name in ("env_steps", *names)]
    is_there = np.isfinite(found[1])
    return [column[is_there] for column in found]
