"""Which environments an env server leaves out."""

import pytest

from envs_server.failures import EnvironmentFailedError, Failures

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


def test_an_environment_that_fails_too_often_within_an_hour_is_left_out_and_no_other() -> None:
    failures, clock = _failures()
    failures.most_per_hour = 4
    for _ in range(40):
        clock.now += 1000.0  # four within an hour, at most
        failures.failed(1, "step", ERROR)
    for _ in range(4):
        failures.failed(0, "step", ERROR)
    clock.now += 61.0
    with pytest.raises(EnvironmentFailedError):
        failures.failed(1, "step", ERROR)
    assert failures.live == [0, 2]
    assert "no licence" in failures.reason


def test_a_failure_that_names_no_environment_counts_against_all() -> None:
    failures, _ = _failures()
    failures.most_per_hour = 1
    failures.failed(None, "step", ERROR)
    with pytest.raises(EnvironmentFailedError):
        failures.failed(None, "step", ERROR)
    assert failures.live == []
