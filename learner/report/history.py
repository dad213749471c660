"""The numbers of a run over time, in bounded memory, for charts; and its learning curve."""

import io
import math
import re
from array import array
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from learner.report.json_lines import LineReader, number, parsed, replace_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# More rows than a chart has pixels show nothing more.
MOST_ROWS = 1200
# A run has some hundred metrics; the names of more are not kept.
MOST_COLUMNS = 1000

# Only shown as they are now: percentiles would double the columns, accounts are not a curve.
_NOT_A_CURVE = re.compile(r".*_p\d\d|ledger/.*|time_seconds|kind")
_IS_METRICS = b'"kind": "metrics"'
# An old version's line has no `ended_env_steps`: its `env_steps` are not those of the parameters.
_OF_A_ROUND = ("env_steps", "ended_env_steps", "elapsed_seconds", "mean_return")

# Values by name; None where a row has none.
Columns = dict[str, list[float | None]]


class History:
    """Rows of metrics in columns, evaluation rounds, and the last line."""

    # Beyond 2 * MOST_ROWS every other row is dropped, and from then on only every second line is
    # kept, every fourth, and so on.

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self._columns: dict[str, array[float]] = {"env_steps": array("d")}
        self._stride = 1
        self._num_lines = 0
        self.latest: dict[str, float] = {}  # the last line of metrics
        self.rounds: list[dict[str, float]] = []

    def columns(self) -> Columns:
        return self._since(0)

    def add(self, lines: list[bytes]) -> tuple[Columns, list[dict[str, float]]] | None:
        """Takes lines of `metrics.jsonl`; new rows and rounds, None if earlier ones are gone."""
        rows, rounds = len(self._columns["env_steps"]), len(self.rounds)
        self._is_rewritten = False
        last = max((i for i, line in enumerate(lines) if _IS_METRICS in line), default=-1)
        for place, line in enumerate(lines):
            if _IS_METRICS in line:
                self._take_metrics(line, is_last=place == last)
            else:
                self._take_record(parsed(line))
        while len(self._columns["env_steps"]) > 2 * MOST_ROWS:
            self._is_rewritten, self._stride = True, 2 * self._stride
            self._columns = {name: column[1::2] for name, column in self._columns.items()}
        while len(self.rounds) > 2 * MOST_ROWS:
            # Every other one, as of the rows.
            self._is_rewritten, self.rounds = True, self.rounds[1::2]
        return None if self._is_rewritten else (self._since(rows), self.rounds[rounds:])

    def _take_metrics(self, line: bytes, *, is_last: bool) -> None:
        self._num_lines += 1
        is_kept = self._num_lines % self._stride == 0
        values = _numbers(parsed(line)) if is_kept or is_last else {}  # parsing is what costs
        if values and is_last:
            self.latest = values
        if is_kept and "env_steps" in values:
            self._take_row(values)

    def _take_row(self, values: Mapping[str, float]) -> None:
        taken = self._columns["env_steps"]
        if taken and taken[-1] > values["env_steps"]:
            self._forget_after(values["env_steps"])  # the run did not resume from those
        rows = len(self._columns["env_steps"])
        for name, value in values.items():
            is_known = name in self._columns
            if is_known or (len(self._columns) < MOST_COLUMNS and not _NOT_A_CURVE.fullmatch(name)):
                column = self._columns.setdefault(name, array("d", [math.nan]) * rows)
                column.append(value)
        for column in self._columns.values():
            column.extend([math.nan] * (rows + 1 - len(column)))

    def _forget_after(self, steps: float) -> None:
        taken = self._columns["env_steps"]
        kept = len(taken)
        while kept and taken[kept - 1] > steps:
            kept -= 1
        rounds = [found for found in self.rounds if found["env_steps"] <= steps]
        if kept < len(taken) or len(rounds) < len(self.rounds):
            self._is_rewritten, self.rounds = True, rounds
            self._columns = {name: column[:kept] for name, column in self._columns.items()}

    def _take_record(self, fields: Mapping[str, Any]) -> None:
        numbers = _numbers(fields)
        if fields.get("kind") == "session" and "env_steps" in numbers:
            # Returns of another environment are no part of the curve.
            is_apart = fields.get("is_begun_anew") or fields.get("is_other_environment")
            self._forget_after(-1 if is_apart else numbers["env_steps"])
        elif fields.get("kind") == "ledger":
            self.latest |= {f"ledger/{name}": value for name, value in numbers.items()}
        elif fields.get("kind") == "evaluation" and None not in map(numbers.get, _OF_A_ROUND):
            names = (*_OF_A_ROUND, "standard_deviation")
            self.rounds.append({name: numbers[name] for name in names if name in numbers})

    def _since(self, row: int) -> Columns:
        # With the digits that a chart shows: a third of the bytes.
        return {
            name: [float(f"{x:.7g}") if math.isfinite(x) else None for x in column[row:]]
            for name, column in self._columns.items()
        }


def _numbers(fields: Mapping[str, Any]) -> dict[str, float]:
    found = {name: number(fields, name) for name in fields}
    return {name: value for name, value in found.items() if value is not None}


def draw(metrics_jsonl: Path, png: Path, *, title: str = "", target: float | None = None) -> None:
    """Draws returns against environment steps."""
    # Of training episodes the mean of each interval, between the lowest and the highest; of each
    # round of evaluation the mean with its standard deviation. Damaged lines are skipped; without
    # any return the axes are empty. `png` is replaced; `target` is the return that ends the run.
    history = History()
    for lines in LineReader(metrics_jsonl).rest():
        history.add(lines)

    def fill(figure: "Figure") -> None:
        axes = figure.add_subplot()
        columns = history.columns()
        names = [f"return/training{suffix}" for suffix in ("", "_min", "_max")]
        steps, returns, low, high = _rows(columns, *names)
        axes.plot(steps, returns, label="training episodes: mean and extremes", color="C0")
        axes.fill_between(steps, low, high, color="C0", alpha=0.15, linewidth=0)
        names = ["env_steps", "mean_return", "standard_deviation"]
        rounds = {name: [played.get(name) for played in history.rounds] for name in names}
        steps, means, deviations = _rows(rounds, *names[1:])
        text = "evaluation: mean and deviation"
        axes.errorbar(steps, means, deviations, label=text, color="C1", marker=".")
        if target is not None:
            text = f"target {target:g}"
            axes.axhline(target, label=text, color="black", linestyle="--", linewidth=1)
        axes.set(xlabel="training environment steps", ylabel="return of an episode", title=title)
        axes.grid(alpha=0.3)
        axes.legend()

    replace_file(png, picture((8, 5), fill))


def picture(size: tuple[float, float], fill: Callable[["Figure"], None]) -> bytes:
    """A PNG of that size in inches, of a figure that `fill` fills."""
    # Slow to import, and needed once. Without pyplot: no window system, no global state.
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    # Else a name with dollar signs is taken for a formula, and may be an error.
    with matplotlib.rc_context({"text.parse_math": False}):
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)
        fill(figure)
        file = io.BytesIO()
        figure.savefig(file, dpi=110, format="png")
    return file.getvalue()


def _rows(columns: Columns, *names: str) -> list[np.ndarray]:
    """Environment steps and these columns, without the rows that lack the first; NaN for gaps."""
    empty = [None] * len(columns["env_steps"])
    found = [np.array(columns.get(name, empty), np.float64) for name in ("env_steps", *names)]
    is_there = np.isfinite(found[1])
    return [column[is_there] for column in found]
