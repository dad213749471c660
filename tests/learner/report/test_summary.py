"""How a run went, and how to go on with it."""

from pathlib import Path
from typing import Any

import pytest

from learner.report.status import EvaluationStatus
from learner.report.summary import Summary, resume_command, summary_rows

LAST = EvaluationStatus(mean_return=0.7, episodes=20, env_steps=487_000, updates=900)
BEST = EvaluationStatus(mean_return=0.85, episodes=20, env_steps=402_000, updates=800)
SUMMARY = Summary(
    reason="all 500,000 steps taken, target 0.95 not reached",
    last=LAST,
    best=BEST,
    env_steps=500_004,
    total_steps=500_000,
    wall_seconds=83.2,
    metrics={
        "elapsed_seconds": 82.9,
        "env_steps_per_second": 1500.4,
        "replay_ratio": 3.99,
        "policy_lag_updates": 2.5,
        "acting_waits_share": 0.25,
        "learning_waits_share": 0.0,
    },
    updates=4321,
    workdir=Path("/my/run"),
    confirmed_updates=None,
    target_return=0.95,
    command="seedrl train catch_r2d2 --seed 3",
)


def rows_of(**changes: Any) -> dict[str, str]:
    return dict(summary_rows(SUMMARY._replace(**changes)))


def test_the_summary_has_the_reason_the_scores_and_the_commands_to_continue_with() -> None:
    rows = rows_of()
    assert rows == {
        "ended": "all 500,000 steps taken, target 0.95 not reached (exit code 1: all steps were "
        "taken, and the target was not confirmed)",
        "last evaluation": "0.700 over 20 episodes, at 487,000 environment steps",
        "best evaluation": "0.850 over 20 episodes, at 402,000 environment steps",
        "environment steps": "500,004 of 500,000, 1,500/s in the last interval",
        "updates": "4,321, replay ratio 3.99, 2.5 updates of policy lag",
        "balance": "environments wait for learning 25% of the time: learning binds",
        "wall time": "0:01:23",
        "run folder": "/my/run",
        "evaluate it": "seedrl evaluate /my/run",
        "resume it": "seedrl train catch_r2d2 --seed 3 --workdir /my/run "
        "--learning.total-steps 1000000",
    }


def test_a_run_without_an_update_gets_a_hint_unless_its_target_was_confirmed() -> None:
    assert rows_of(updates=0)["updates"].startswith("none. hint: ")
    assert rows_of(updates=0, confirmed_updates=0)["updates"] == "none"


def test_a_run_fails_when_its_target_is_not_reached_in_all_its_steps() -> None:
    assert SUMMARY.has_missed
    changes: list[dict[str, Any]] = [{"env_steps": 499_999}, {"confirmed_updates": 0}]
    for change in (*changes, {"target_return": None}):
        assert not SUMMARY._replace(**change).has_missed


@pytest.mark.parametrize(
    ("command", "changes", "expected"),
    [
        (
            "seedrl train x --workdir=other --resume never --init_from runs/zero --seed 1",
            {"env_steps": 10},
            "seedrl train x --seed 1 --workdir /my/run",
        ),
        (
            "seedrl train x --learning.total_steps 7",
            {},
            "seedrl train x --workdir /my/run --learning.total-steps 1000000",
        ),
        (
            "seedrl train 'my config.py' --evaluation.target_return 3",
            {"env_steps": 10, "confirmed_updates": 800},
            "seedrl train 'my config.py' --workdir /my/run --evaluation.target-return None",
        ),
    ],
)
def test_the_command_that_resumes_is_the_users_own(
    command: str, changes: dict[str, Any], expected: str
) -> None:
    assert resume_command(SUMMARY._replace(command=command, **changes)) == expected
