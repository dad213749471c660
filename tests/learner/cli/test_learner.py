import dataclasses
import gc
from pathlib import Path

import pytest

import learner.session.run
from learner.cli.learner import _result, main
from seedrl import config_file
from seedrl.errors import CheckpointError
from seedrl.exit_codes import ExitCode


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


def test_no_garbage_is_collected_before_the_session_has_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    collecting: list[bool] = []

    def train(config: object, **arguments: object) -> None:
        collecting.append(gc.isenabled())
        raise CheckpointError("far enough")

    monkeypatch.setattr(learner.session.run, "train", train)
    try:
        assert main(["cartpole_r2d2", "--workdir", str(tmp_path)]) == 74
    finally:
        gc.enable()
    assert collecting == [False]
