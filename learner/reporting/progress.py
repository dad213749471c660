"""What a person sees of a run, live and at its end."""

import math
import shlex
import sys
import time
from collections.abc import Callable, Mapping
from typing import TextIO, cast

from rich.console import Console
from rich.live import Live
from rich.panel import Panel
from rich.table import Table

from learner.reporting.events import Event
from learner.reporting.output import TolerantStream
from learner.reporting.summary import Summary
from learner.reporting.wording import duration

_DASH = "–"

# Rows of the panel: a label, and the metrics that follow it with their formats.
_Cell = tuple[str, str]
_ROWS: tuple[tuple[str, tuple[_Cell, ...]], ...] = (
    ("environment steps", (("env_steps", "{:,.0f}"), ("env_steps_per_second", "{:,.0f}/s"))),
    ("frames", (("frames_per_second", "{:,.0f}/s"),)),
    (
        "updates",
        (
            ("updates", "{:,.0f}"),
            ("updates_per_second", "{:,.1f}/s"),
            ("skipped_updates", "{:,.0f} skipped"),
        ),
    ),
    ("replay ratio", (("replay_ratio", "{:.2f}"), ("replay_ratio_target", "target {:.2f}"))),
    (
        "policy lag",
        (
            ("policy_lag_updates", "{:.1f} updates"),
            ("serving_lag_updates", "serving {:.1f}"),
        ),
    ),
    (
        "return",
        (("return/training", "training {:.1f}"), ("return/evaluation", "evaluation {:.1f}")),
    ),
    ("loss", (("loss", "{:.3g}"), ("gradient_norm", "gradient {:.3g}"), ("q_mean", "Q {:.3g}"))),
    ("batch fill", (("batch_fill", "{:.0%}"), ("inference_ms_p95", "inference p95 {:.1f} ms"))),
    (
        "waits",
        (("acting_waits_share", "acting {:.0%}"), ("learning_waits_share", "learning {:.0%}")),
    ),
    ("replay", (("replay_sequences", "{:,.0f} sequences"),)),
)
_LINE: tuple[_Cell, ...] = (
    ("env_steps", "{:,.0f} steps"),
    ("env_steps_per_second", "{:,.0f}/s"),
    ("updates", "{:,.0f} updates"),
    ("replay_ratio", "ratio {:.2f}"),
    ("policy_lag_updates", "lag {:.1f}"),
    ("return/training", "training {:.1f}"),
    ("return/evaluation", "evaluation {:.1f}"),
    ("loss", "loss {:.3g}"),
)


_SKIPPED: _Cell = ("skipped_updates", "{:,.0f} skipped")


class Progress:
    """Shows a run's metrics: a live panel on a terminal, else one line for each update.

    Owned by one thread, but for `show` and `log`. Returns stay as last seen, until an episode ends
    again.
    """

    def __init__(
        self, console: Console | None = None, *, clock: Callable[[], float] = time.monotonic
    ):
        self._console = console if console is not None else _console(sys.stderr)
        self._clock, self._start = clock, clock()
        self._last: dict[str, float] = {}
        self._live: Live | None = None
        if self._console.is_terminal:
            self._live = Live(self._panel(), console=self._console, refresh_per_second=2)
            self._live.start()

    def update(self, metrics: Mapping[str, float]) -> None:
        """Shows these metrics; what is missing is a dash."""
        returns = {name: value for name, value in self._last.items() if name.startswith("return/")}
        self._last = {**returns, **metrics}
        if self._live is not None:
            self._live.update(self._panel())
        else:
            skipped = (_SKIPPED,) if self._last.get("skipped_updates") else ()
            cells = [_format(self._last, *cell) for cell in (*_LINE, *skipped)]
            self.log(f"{self._elapsed()}  {'  '.join(cells)}")

    def show(self, event: Event) -> None:
        """Prints an event; any thread may."""
        warning = "warning: " if event.is_problem else ""
        self.log(f"{duration(event.elapsed_seconds)}  {warning}{event.text}")

    def log(self, line: str) -> None:
        """Prints a line, above the panel if there is one."""
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Leaves the last panel standing and gives the terminal back. May be called twice."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _elapsed(self) -> str:
        return duration(self._last.get("elapsed_seconds", self._clock() - self._start))

    def _panel(self) -> Panel:
        table = Table.grid(padding=(0, 3))
        for label, cells in _ROWS:
            table.add_row(label, *(_format(self._last, *cell) for cell in cells))
        return Panel(table, title=f"seedrl · {self._elapsed()}", expand=False)


def print_summary(summary: Summary, console: Console | None = None) -> None:
    """Prints how a run went, on stdout."""
    score = _DASH
    if summary.mean_return is not None:
        score = f"{summary.mean_return:.1f} over {summary.episodes} evaluation episodes"
        if summary.solved:
            score += ", target reached and confirmed"
    rows = {
        "return": score,
        "environment steps": f"{summary.env_steps:,}",
        "wall time": duration(summary.wall_seconds),
        "steps per second": f"{summary.env_steps_per_second:,.0f}",
        "replay ratio": f"{summary.replay_ratio:.2f}",
        "policy lag": f"{summary.policy_lag_updates:.1f} updates",
        "updates": f"{summary.updates:,}",
        "run folder": str(summary.workdir),
    }
    if summary.best_return is not None:
        rows["best checkpoint"] = (
            f"{summary.best_return:g}, after {summary.best_updates:,} updates: "
            f"seedrl evaluate {shlex.quote(str(summary.workdir))} --best"
        )
    out = console if console is not None else _console(sys.stdout)
    for label, value in rows.items():
        out.print(f"{label:<18} {value}", markup=False, highlight=False, soft_wrap=True)


def _console(stream: TextIO) -> Console:
    # rich ends the process when it cannot write: a run continues without its reader.
    return Console(file=cast(TextIO, TolerantStream(stream)))


def _format(metrics: Mapping[str, float], name: str, form: str) -> str:
    value = metrics.get(name)
    if value is None or not math.isfinite(value):
        # The words around the number stay, so that a dash shows what is missing.
        opening, closing = form.index("{"), form.index("}")
        return f"{form[:opening]}{_DASH}{form[closing + 1 :]}"
    return form.format(value)
