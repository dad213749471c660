"""Which environments an env server leaves out."""

import pytest

from envs_server.failures import EnvironmentFailedError, Failures

ERROR = RuntimeError("no licence")


def test_an_environment_that_fails_too_often_within_an_hour_is_left_out_and_no_other() -> None:
    now = [0.0]
    failures = Failures(3, clock=lambda: now[0])
    failures.most_per_hour = 4
    for _ in range(40):
        now[0] += 1000.0  # four within an hour, at most
        failures.failed(1, "step", ERROR)
    for _ in range(4):
        failures.failed(0, "step", ERROR)
    now[0] += 61.0
    with pytest.raises(EnvironmentFailedError):
        failures.failed(1, "step", ERROR)
    assert failures.live == [0, 2]
    assert "no licence" in failures.reason
