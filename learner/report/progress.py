"""A run on the terminal: live, and its summary."""

import sys
import threading
from collections.abc import Mapping
from typing import TextIO, cast

from rich.console import Console
from rich.live import Live
from rich.panel import Panel
from rich.table import Table

from learner.report.events import Event
from learner.report.output import TolerantStream
from learner.report.panel import duration, line, rows
from learner.report.status import Status
from learner.report.summary import Summary, summary_rows

_STAY = ("return/training",)


class Progress:
    """Shows a run: a live panel on a terminal, else one line for each interval of metrics.

    Its methods may be called by any thread. Returns stay until an episode ends again.
    """

    def __init__(self, console: Console | None = None):
        self._console = console if console is not None else _console(sys.stderr)
        self._lock = threading.Lock()  # guards the three below
        self._metrics: dict[str, float] = {}
        self._status: Status | None = None
        self._live: Live | None = None
        if self._console.is_terminal:
            # Without its own thread that refreshes: it could die unnoticed.
            self._live = Live(self._panel(), console=self._console, auto_refresh=False)
            self._live.start()

    def look(self, status: Status) -> None:
        """Takes the state of the run; a terminal shows it at once."""
        with self._lock:
            self._status = status
            if self._live is not None:
                self._live.update(self._panel(), refresh=True)

    def update(self, metrics: Mapping[str, float]) -> None:
        """Takes the metrics of an interval, and shows them."""
        with self._lock:
            seen = {name: value for name, value in self._metrics.items() if name in _STAY}
            self._metrics = {**seen, **metrics}
            if self._live is not None:
                self._live.update(self._panel())
                return
            text = line(self._metrics, self._status)
        self.log(f"{duration(metrics.get('elapsed_seconds', 0.0))}  {text}")

    def show(self, event: Event) -> None:
        """Prints an event."""
        warning = "warning: " if event.is_problem else ""
        self.log(f"{duration(event.elapsed_seconds)}  {warning}{event.text}")

    def log(self, line: str) -> None:
        """Prints a line, above the panel if there is one."""
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Leaves the last panel standing and gives the terminal back. May be called twice."""
        with self._lock:
            live, self._live = self._live, None
        if live is not None:
            live.stop()

    def _panel(self) -> Panel:
        status = self._status
        if status is None:
            return Panel("starting", title="seedrl", expand=False)
        table = Table.grid(padding=(0, 3))
        for row in rows(status, self._metrics):
            table.add_row(*row)
        title = f"{status.config} · {duration(status.elapsed_seconds)} · {status.state}"
        return Panel(table, title=title, expand=False)


def print_summary(summary: Summary, console: Console | None = None) -> None:
    """Prints how a run went, on stdout."""
    out = console if console is not None else _console(sys.stdout)
    for label, value in summary_rows(summary):
        out.print(f"{label:<18} {value}", markup=False, highlight=False, soft_wrap=True)


def _console(stream: TextIO) -> Console:
    # rich ends the process when it cannot write: a run continues without its reader.
    return Console(file=cast(TextIO, TolerantStream(stream)))
