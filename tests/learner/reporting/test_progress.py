"""What a person sees, with and without a terminal."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from learner.reporting.progress import Progress, print_summary
from learner.reporting.summary import Summary

METRICS = {
    "env_steps": 12_345.0,
    "env_steps_per_second": 678.9,
    "updates": 90.0,
    "replay_ratio": 3.996,
    "policy_lag_updates": 1.25,
    "return/training": 21.5,
    "return/evaluation": 475.0,
    "loss": 0.01234,
    "batch_fill": 0.5,
    "acting_waits_share": 0.25,
    "elapsed_seconds": 3661.5,
}


def console(*, terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=100, color_system=None)


def text(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_without_a_terminal_an_update_is_one_line() -> None:
    out = console(terminal=False)
    progress = Progress(out)
    progress.update(METRICS)
    progress.close()
    assert text(out) == (
        "1:01:01  12,345 steps  679/s  90 updates  ratio 4.00  lag 1.2  training 21.5  "
        "evaluation 475.0  loss 0.0123\n"
    )


def test_skipped_updates_are_in_the_line() -> None:
    out = console(terminal=False)
    progress = Progress(out)
    for skipped in (0.0, 3.0):
        progress.update({**METRICS, "skipped_updates": skipped})
    assert [line.endswith("  3 skipped") for line in text(out).splitlines()] == [False, True]


@pytest.mark.parametrize("missing", [{}, {"loss": float("nan")}])
def test_what_is_missing_is_a_dash(missing: dict[str, float]) -> None:
    out = console(terminal=False)
    times = iter([10.0, 72.0])
    Progress(out, clock=lambda: next(times)).update(missing)
    assert text(out) == (
        "0:01:02  – steps  –/s  – updates  ratio –  lag –  training –  evaluation –  loss –\n"
    )


def test_the_last_return_stays_until_there_is_another() -> None:
    out = console(terminal=False)
    progress = Progress(out)
    progress.update(METRICS)
    progress.update({"env_steps": 20_000.0})
    line = text(out).splitlines()[1]
    assert "evaluation 475.0" in line and "20,000 steps" in line and "loss –" in line


def test_a_line_is_printed_as_it_is() -> None:
    out = console(terminal=False)
    long = "[bold]learner[/bold]: " + "x" * 200
    Progress(out).log(long)
    assert text(out) == f"{long}\n"


def test_a_terminal_shows_a_panel_that_stays_at_the_end() -> None:
    out = console(terminal=True)
    progress = Progress(out)
    progress.update(METRICS)
    progress.log("a line above")
    progress.close()
    progress.close()
    last = text(out)[text(out).rindex("╭") :]
    for part in ("seedrl · 1:01:01", "12,345", "679/s", "training 21.5", "evaluation 475.0"):
        assert part in last
    assert "50%" in last and "acting 25%" in last and "learning –" in last
    assert "a line above" in text(out)


def summary(mean_return: float | None) -> Summary:
    return Summary(
        mean_return=mean_return,
        episodes=100,
        env_steps=123_456,
        wall_seconds=83.2,
        env_steps_per_second=1500.4,
        replay_ratio=3.99,
        policy_lag_updates=2.5,
        updates=4321,
        workdir=Path("runs/one"),
        solved=mean_return is not None,
    )


def test_the_summary_has_the_three_balance_numbers_and_the_folder() -> None:
    out = console(terminal=False)
    print_summary(summary(480.25), out)
    assert text(out).splitlines() == [
        "return             480.2 over 100 evaluation episodes, target reached and confirmed",
        "environment steps  123,456",
        "wall time          0:01:23",
        "steps per second   1,500",
        "replay ratio       3.99",
        "policy lag         2.5 updates",
        "updates            4,321",
        "run folder         runs/one",
    ]


def test_the_summary_names_the_best_checkpoint_if_there_is_one() -> None:
    out = console(terminal=False)
    print_summary(summary(480.25)._replace(best_return=500.0, best_updates=1_234), out)
    assert text(out).splitlines()[-1] == (
        "best checkpoint    500, after 1,234 updates: seedrl evaluate runs/one --best"
    )


def test_a_run_without_evaluation_has_no_return() -> None:
    out = console(terminal=False)
    print_summary(summary(None), out)
    assert text(out).splitlines()[0] == "return             –"
