"""Learning curves of groups of runs, over steps and over seconds: a picture, or a page with it."""

import base64
import html
import io
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from learner.extras.comparison import Comparison, Floats, interquartile_mean, letter, lines
from learner.extras.measured_run import MeasuredRun, Round

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_POINTS = 60
# A band is only looked at.
_REPETITIONS = 1_000
_COLORS = 10
_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{title}</title>
<style>body {{ font: 15px system-ui, sans-serif; max-width: 75rem; margin: 2rem auto; }}
img {{ max-width: 100%; }} pre {{ white-space: pre-wrap; line-height: 1.5; }}</style>
<h1>{title}</h1><img alt="learning curves" src="data:image/png;base64,{picture}">
<pre>{text}</pre></html>
"""


def png(comparison: Comparison) -> bytes:
    """The picture: a row for each task, the interquartile mean of each group with its band."""
    # Slow to import, and needed once. Without pyplot: no window system, no global state.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    tasks = list(dict.fromkeys(each.group.task for each in comparison.groups))
    figure = Figure(figsize=(13, 4.8 * len(tasks)), layout="constrained")
    FigureCanvasAgg(figure)
    for row, task in enumerate(tasks):
        over_steps = figure.add_subplot(len(tasks), 2, 2 * row + 1)
        over_seconds = figure.add_subplot(len(tasks), 2, 2 * row + 2, sharey=over_steps)
        _draw(over_steps, comparison, task, _steps, lambda each: each.env_steps)
        _draw(over_seconds, comparison, task, _seconds, lambda each: each.seconds)
        over_steps.set(xlabel="training environment steps", ylabel="mean return", title=task)
        over_seconds.set(xlabel="seconds since the start of the run")
        over_steps.legend(fontsize="small")
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=110)
    return file.getvalue()


def page(comparison: Comparison, picture: bytes) -> str:
    """The picture, a PNG, and the text as one HTML file that needs no other."""
    return _PAGE.format(
        title=html.escape(" and ".join({each.group.task: 0 for each in comparison.groups})),
        picture=base64.b64encode(picture).decode(),
        text=html.escape("\n".join(lines(comparison))),
    )


def band(
    runs: Sequence[MeasuredRun], end: float, position: Callable[[Round], float]
) -> tuple[Floats, Floats, Floats, Floats]:
    """Points of a group's curves that are fixed beforehand, and at each the interquartile mean over
    runs and the ends of its 95 % bootstrap interval; `[60]` each.

    Between two rounds a curve is straight; before the first and behind the last it is level.
    """
    points = np.linspace(0.0, end, _POINTS)
    curves = [sorted((position(each), each.mean_return) for each in run.curve) for run in runs]
    values = np.array([np.interp(points, *np.transpose(curve)) for curve in curves])
    drawn = np.random.default_rng(0).integers(len(runs), size=(_REPETITIONS, len(runs)))
    resampled = interquartile_mean(values[drawn], axis=1)
    low, high = np.quantile(resampled, (0.025, 0.975), axis=0)
    return points, interquartile_mean(values, axis=0), low, high


def _draw(
    axes: "Axes",
    comparison: Comparison,
    task: str,
    end: Callable[[MeasuredRun], float],
    position: Callable[[Round], float],
) -> None:
    for place, numbers in enumerate(comparison.groups):
        group = numbers.group
        if group.task != task:
            continue
        color: dict[str, Any] = {"color": f"C{place % _COLORS}"}
        points, middle, low, high = band(group.runs, max(map(end, group.runs)), position)
        label = f"{letter(place)}  {group.name} ({len(group.runs)})"
        axes.plot(points, middle, label=label, **color)
        axes.fill_between(points, low, high, alpha=0.2, linewidth=0, **color)
        for run in group.runs:
            pairs = sorted((position(each), each.mean_return) for each in run.curve)
            axes.plot(*np.transpose(pairs), lw=0.6, alpha=0.4, **color)
        if numbers.threshold is not None:
            axes.axhline(numbers.threshold, color="black", linestyle="--", linewidth=1)
    axes.grid(alpha=0.3)


def _steps(run: MeasuredRun) -> float:
    return run.record.env_steps


def _seconds(run: MeasuredRun) -> float:
    return run.seconds
