import dataclasses

import pytest

from learner.cli.learner import _result
from seedrl import config_file
from seedrl.errors import ExitCode


@pytest.mark.parametrize(
    ("target", "env_steps", "solved", "expected"),
    [
        (475.0, 1_000, False, ExitCode.TARGET_MISSED),
        (475.0, 999, False, ExitCode.OK),  # ended by SIGTERM
        (475.0, 1_000, True, ExitCode.OK),
        (None, 1_000, False, ExitCode.OK),
    ],
)
def test_a_run_fails_when_its_target_is_not_reached_in_all_its_steps(
    target: float | None, env_steps: int, solved: bool, expected: ExitCode
) -> None:
    config = config_file.load("cartpole_r2d2")
    config = dataclasses.replace(
        config,
        evaluation=dataclasses.replace(config.evaluation, target_return=target),
        learning=dataclasses.replace(config.learning, total_steps=1_000),
    )
    assert _result(config, env_steps=env_steps, solved=solved) is expected
