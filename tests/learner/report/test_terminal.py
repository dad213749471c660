"""What a person sees of a run, with and without a terminal, and of its end."""

import dataclasses
import io
from pathlib import Path
from typing import Any, cast

from rich.console import Console

from learner.report.events import Event
from learner.report.status import (
    NO_IMPROVEMENT,
    OUT_OF_TIME,
    STOPPED,
    EnvServerStatus,
    EvaluationStatus,
    Slots,
    Status,
)
from learner.report.terminal import (
    Progress,
    Summary,
    resume_command,
    summary_rows,
)

METRICS = {
    "env_steps": 12_345.0,
    "env_steps_per_second": 678.0,
    "updates": 90.0,
    "replay_ratio": 3.996,
    "replay_ratio_target": 4.0,
    "policy_lag_updates": 1.25,
    "return/training": 0.953,
    "loss": 0.01234,
    "acting_waits_share": 0.25,
    "acting_environment_share": 0.4,
    "acting_batch_share": 0.05,
    "acting_act_share": 0.2,
    "acting_other_share": 0.0,
    "learning_waits_share": 0.0,
}


def played(mean: float, env_steps: int = 60, *, is_confirmation: bool = False) -> EvaluationStatus:
    return EvaluationStatus(
        mean_return=mean,
        episodes=20,
        env_steps=env_steps,
        ended_env_steps=9_999,
        updates=1,
        is_confirmation=is_confirmation,
    )


def env_server(name: str, **others: Any) -> EnvServerStatus:
    values: dict[str, Any] = {"name": name, "host": "vm", "state": "live", "since_seconds": 0.0}
    values |= {"groups": 3, "environments": 66, "training_slots": 16, "evaluation_slots": 50}
    return EnvServerStatus(**{**values, **others})


STATUS = Status(
    time_seconds=0.0,
    state="training",
    config="cartpole_r2d2",
    pid=1,
    started_seconds=0.0,
    elapsed_seconds=3661.5,
    env_steps=12_345,
    total_steps=50_000,
    updates=90,
    target_return=0.95,
    last_evaluation=played(0.7, 12_000),
    best_evaluation=played(1.0, 9_000),
    env_steps_per_second=700.0,
    updates_per_second=5.0,
    balance="learning binds: acting waits 25% of the time",
    metrics=METRICS,
    training_slots=Slots(total=32, live=32, waiting=4),
    evaluation_slots=Slots(total=100, live=100, hung=2),
    env_servers=(
        env_server("vm:1", failures=3, quarantined=2),
        env_server("vm:2"),
        env_server("v", state="left"),
    ),
)


def console(*, terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=120, color_system=None)


def text(console: Console) -> str:
    return cast(io.StringIO, console.file).getvalue()


def test_updates_and_events_are_lines_without_a_terminal() -> None:
    out = console(terminal=False)
    progress = Progress(out)
    progress.look(dataclasses.replace(STATUS, metrics={}))
    assert text(out) == ""
    for _ in range(2):  # one line for each interval of metrics
        progress.look(dataclasses.replace(STATUS, metrics={**METRICS, "elapsed_seconds": 9.5}))
    about: dict[str, Any] = {"time_seconds": 0.0, "env_steps": 1, "kind": "ended"}
    text_of_event = "the run [bold]ends"
    progress.show(Event(elapsed_seconds=62.0, is_problem=True, text=text_of_event, **about))
    progress.close()
    update, shown = text(out).splitlines()
    assert update.startswith("1:01:01  12,345 steps (25%)  678/s  90 updates  ratio 4.00  ")
    assert shown == "0:01:02  warning: the run [bold]ends"


def test_a_refusal_that_ends_the_run_by_an_error_is_not_shown_before_it() -> None:
    out = console(terminal=False)
    progress = Progress(out, own_host="here")
    about: dict[str, Any] = {"time_seconds": 0.0, "elapsed_seconds": 0.0, "env_steps": 1}
    for server in ("here:12", "there:12"):
        text_of_event, fields = f"{server} refused", {"server": server}
        about |= {"kind": "server_refused", "is_problem": True}
        progress.show(Event(**about, text=text_of_event, fields=fields))
    progress.close()
    assert text(out).splitlines() == ["0:00:00  warning: there:12 refused"]


def test_a_terminal_shows_a_panel_that_stays_at_the_end() -> None:
    out = console(terminal=True)
    progress = Progress(out)
    progress.look(STATUS)
    progress.log("a line above")
    progress.close()
    last = text(out)[text(out).rindex("╭") :]
    assert "cartpole_r2d2 · 1:01:01 · training" in last and "12,345 of 50,000" in last
    assert "a line above" in text(out)


SUMMARY = Summary(
    status=dataclasses.replace(
        STATUS,
        reason="all 50,000 steps taken, target 0.95 not reached",
        env_steps=50_004,
        updates=4321,
        metrics={**METRICS, "elapsed_seconds": 82.9, "policy_lag_updates": 2.5},
    ),
    wall_seconds=83.2,
    workdir=Path("/my/run"),
    command="seedrl train cartpole_r2d2 --seed 3",
)


def with_(status: dict[str, Any], **changes: Any) -> Summary:
    changed = dataclasses.replace(SUMMARY.status, **status)
    return SUMMARY._replace(status=changed, **changes)


def test_a_run_fails_when_its_target_is_not_reached_in_all_its_steps() -> None:
    assert SUMMARY.has_missed and not SUMMARY._replace(confirmed_updates=0).has_missed
    stopped = {"reason": f"{STOPPED} SIGTERM"}
    for change in ({"env_steps": 49_999}, {"target_return": None}, stopped):
        assert not with_(change).has_missed
    for reason in (OUT_OF_TIME, NO_IMPROVEMENT):
        assert with_({"env_steps": 49_999, "reason": f"{reason}, target 9"}).has_missed


def test_the_command_that_resumes_lifts_the_limit_that_has_ended_the_run() -> None:
    for reason, flag in (
        (OUT_OF_TIME, "--learning.max-seconds None"),
        (NO_IMPROVEMENT, "--evaluation.patience-rounds 0"),
    ):
        summary = with_({"env_steps": 10, "reason": reason}, command="seedrl train x")
        assert resume_command(summary) == f"seedrl resume /my/run {flag}"
    # Else the run would go on with a learning rate of 0.
    for decay_steps, flag in (
        (0, ""),
        (50_000, " --agent.learning-rate-decay-steps 100000"),
        (100_000, ""),
    ):
        found = resume_command(SUMMARY._replace(decay_steps=decay_steps))
        assert found == f"seedrl resume /my/run --learning.total-steps 100000{flag}"


def test_the_command_that_resumes_is_the_users_own() -> None:
    for command, env_steps, confirmed, expected in (
        (
            "python -m learner x --workdir=other --resume never --init_from runs/zero --seed 1",
            10,
            None,
            "python -m learner x --workdir=other --resume never --init_from runs/zero --seed 1 "
            "--workdir /my/run --resume auto",
        ),
        (
            "python -m learner x --learning.total_steps 7",
            50_000,
            None,
            "python -m learner x --learning.total_steps 7 --workdir /my/run "
            "--learning.total-steps 100000",
        ),
        (
            "seedrl launch x --on ray",
            10,
            None,
            "seedrl launch x --on ray --workdir /my/run",
        ),
        (
            "seedrl train 'my config.py' --evaluation.target_return 3",
            10,
            800,
            "seedrl resume /my/run --evaluation.target-return None",
        ),
    ):
        summary = with_({"env_steps": env_steps}, command=command, confirmed_updates=confirmed)
        assert resume_command(summary) == expected


def test_a_summary_without_updates_names_those_that_were_skipped() -> None:
    for skipped, expected in ((0.0, "none; the run ended before"), (43.0, "none; 43 skipped")):
        summary = with_({"updates": 0, "metrics": {"skipped_updates": skipped}})
        assert dict(summary_rows(summary))["updates"].startswith(expected)
