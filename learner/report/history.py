"""The numbers of a run over time, in bounded memory, for charts."""

import math
import re
from array import array
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from learner.report.json_lines import LineReader, parsed

# More rows than a chart has pixels show nothing more.
MOST_ROWS = 1200
# A run has some hundred metrics; the names of more are not kept.
MOST_COLUMNS = 1000

# Only shown as they are now: percentiles would double the columns, accounts are not a curve.
_NOT_A_CURVE = re.compile(r".*_p\d\d|ledger/.*|time_seconds|kind")
_IS_METRICS = b'"kind": "metrics"'
_LARGEST = 1e300  # without those that are not finite, and integers that no float holds
_OF_A_ROUND = ("env_steps", "elapsed_seconds", "mean_return")


class Added(NamedTuple):
    """Result of `History.add`.

    Attributes:
      columns: name -> values of the new rows; null where a row has none.
      rounds: evaluation rounds, as lines of `metrics.jsonl` have them.
      is_rewritten: rows of before are gone: the columns of `History.columns` count.
    """

    columns: dict[str, list[float | None]]
    rounds: list[dict[str, float]]
    is_rewritten: bool


class History:
    """Rows of metrics in columns, evaluation rounds, and the last line.

    Beyond 2 * MOST_ROWS every other row is dropped, and from then on only every second line is
    kept, every fourth, and so on.

    Attributes:
      latest: the last line of metrics.
      rounds: all rounds of evaluation.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forgets everything."""
        self._columns: dict[str, array[float]] = {"env_steps": array("d")}
        self._stride = 1
        self._num_lines = 0
        self.latest: dict[str, float] = {}
        self.rounds: list[dict[str, float]] = []

    @property
    def num_rows(self) -> int:
        """Rows that are kept."""
        return len(self._columns["env_steps"])

    def columns(self) -> dict[str, list[float | None]]:
        """All rows: name -> values."""
        return self._since(0)

    def add(self, lines: list[bytes]) -> Added:
        """Takes whole lines of `metrics.jsonl`; others are skipped."""
        while len(lines) > 2 * MOST_ROWS * self._stride:
            # So that not every line of a long run is parsed to be dropped.
            self._stride *= 2
        rows, rounds = self.num_rows, len(self.rounds)
        is_rewritten = False
        last = max((i for i, line in enumerate(lines) if _IS_METRICS in line), default=-1)
        for number, line in enumerate(lines):
            if _IS_METRICS in line:
                is_rewritten |= self._take_metrics(line, is_last=number == last)
            else:
                is_rewritten |= self._take_record(parsed(line))
        is_rewritten |= self._thin_out()
        if is_rewritten:
            return Added({}, [], is_rewritten=True)
        return Added(self._since(rows), self.rounds[rounds:], is_rewritten=False)

    def read(self, path: Path) -> "History":
        """Takes a whole file of metrics; nothing if it cannot be read."""
        for lines in LineReader(path).rest():
            self.add(lines)
        return self

    def _take_metrics(self, line: bytes, *, is_last: bool) -> bool:
        """Takes one of `_stride` lines, and looks at the last; whether rows had to go."""
        self._num_lines += 1
        is_kept = self._num_lines % self._stride == 0
        values = _numbers(parsed(line)) if is_kept or is_last else {}
        if values and is_last:
            self.latest = values
        return is_kept and self._take_row(values)

    def _thin_out(self) -> bool:
        """Drops every other row, and round, when there are too many; whether it did."""
        is_many = self.num_rows > 2 * MOST_ROWS
        if is_many:
            self._stride *= 2
            self._columns = {name: column[1::2] for name, column in self._columns.items()}
        if len(self.rounds) > 2 * MOST_ROWS:
            self.rounds = self.rounds[1::2]
            return True
        return is_many

    def _take_row(self, values: Mapping[str, float]) -> bool:
        """Adds a row; whether others had to go: those that the run did not resume from."""
        steps = values.get("env_steps")
        if steps is None:
            return False
        taken = self._columns["env_steps"]
        is_rewritten = bool(taken) and taken[-1] > steps
        if is_rewritten:
            self._forget_after(steps)
        rows = self.num_rows
        for name, value in values.items():
            is_known = name in self._columns
            if is_known or (len(self._columns) < MOST_COLUMNS and not _NOT_A_CURVE.fullmatch(name)):
                column = self._columns.setdefault(name, array("d", [math.nan]) * rows)
                column.append(value)
        for column in self._columns.values():
            column.extend([math.nan] * (rows + 1 - len(column)))
        return is_rewritten

    def _forget_after(self, steps: float) -> bool:
        taken = self._columns["env_steps"]
        kept = len(taken)
        while kept and taken[kept - 1] > steps:
            kept -= 1
        rounds = [found for found in self.rounds if found["env_steps"] <= steps]
        is_rewritten = kept < len(taken) or len(rounds) < len(self.rounds)
        self._columns = {name: column[:kept] for name, column in self._columns.items()}
        self.rounds = rounds
        return is_rewritten

    def _take_record(self, fields: Mapping[str, Any]) -> bool:
        """Takes any other line; whether rows or rounds had to go."""
        numbers = _numbers(fields)
        if fields.get("kind") == "session" and "env_steps" in numbers:
            return self._forget_after(-1 if fields.get("is_begun_anew") else numbers["env_steps"])
        if fields.get("kind") == "ledger":
            self.latest |= {f"ledger/{name}": value for name, value in numbers.items()}
        elif fields.get("kind") == "evaluation" and None not in map(numbers.get, _OF_A_ROUND):
            names = (*_OF_A_ROUND, "standard_deviation")
            self.rounds.append({name: numbers[name] for name in names if name in numbers})
        return False

    def _since(self, row: int) -> dict[str, list[float | None]]:
        return {name: _short(column[row:]) for name, column in self._columns.items()}


def _numbers(fields: Mapping[str, Any]) -> dict[str, float]:
    return {
        name: value
        for name, value in fields.items()
        if isinstance(value, int | float) and abs(value) < _LARGEST
    }


def _short(values: Iterable[float]) -> list[float | None]:
    """With the digits that a chart shows: a third of the bytes."""
    return [float(f"{value:.7g}") if math.isfinite(value) else None for value in values]
