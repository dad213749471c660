"""What a person sees, with and without a terminal."""

import io
from typing import cast

from rich.console import Console

from learner.report.events import Event
from learner.report.progress import Progress
from tests.learner.report.test_panel import METRICS, STATUS


def console(*, terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=120, color_system=None)


def text(console: Console) -> str:
    return cast(io.StringIO, console.file).getvalue()


def test_without_a_terminal_an_update_is_one_line() -> None:
    out = console(terminal=False)
    progress = Progress(out)
    progress.look(STATUS)
    assert text(out) == ""
    progress.update({**METRICS, "elapsed_seconds": 3661.5})
    progress.close()
    assert text(out).startswith("1:01:01  12,345 steps (25%)  678/s  90 updates  ratio 4.00  ")


def test_an_event_is_a_line_and_a_problem_a_warning() -> None:
    out = console(terminal=False)
    progress = Progress(out)
    for is_problem in (False, True):
        event = Event(
            time_seconds=0.0,
            elapsed_seconds=62.0,
            env_steps=1,
            kind="ended",
            is_problem=is_problem,
            text="the run [bold]ends",
        )
        progress.show(event)
    assert text(out) == "0:01:02  the run [bold]ends\n0:01:02  warning: the run [bold]ends\n"


def test_a_terminal_shows_a_panel_that_stays_at_the_end() -> None:
    out = console(terminal=True)
    progress = Progress(out)
    progress.look(STATUS)
    progress.update(METRICS)
    progress.log("a line above")
    progress.close()
    progress.close()
    last = text(out)[text(out).rindex("╭") :]
    title = "cartpole_r2d2 · 1:01:01 · training"
    for part in (title, "12,345 of 50,000", "2 with 132", "best 1.000"):
        assert part in last
    assert "a line above" in text(out)
