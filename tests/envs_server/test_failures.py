"""Which environments an env server leaves out."""

import pytest

from envs_server.failures import Budget, EnvironmentFailedError, Failures

ERROR = RuntimeError("no licence")


class Clock:
    """Seconds."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def _failures(num_envs: int = 3) -> tuple[Failures, Clock]:
    clock = Clock()
    return Failures(num_envs, clock=clock), clock


def test_the_budget_of_an_hour_is_another_and_what_is_older_does_not_count() -> None:
    failures, clock = _failures()
    failures.budget = Budget(per_minute=3, per_hour=4)
    for _ in range(40):
        clock.now += 1000.0  # four within an hour, at most
        failures.failed(2, "step", ERROR)
    clock.now += 61.0
    with pytest.raises(EnvironmentFailedError):
        failures.failed(2, "step", ERROR)
    assert failures.live == [0, 1]


def test_a_failure_that_names_no_environment_counts_against_all() -> None:
    failures, _ = _failures()
    failures.budget = Budget(per_minute=1, per_hour=1)
    failures.failed(None, "step", ERROR)
    with pytest.raises(EnvironmentFailedError):
        failures.failed(None, "step", ERROR)
    assert failures.live == []
