import gc
from pathlib import Path

import pytest

import learner.session.run
from learner.cli.learner import main
from seedrl.errors import CheckpointError
from tests import own_process


def test_no_garbage_is_collected_before_the_session_has_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    collecting: list[bool] = []

    def train(config: object, **arguments: object) -> None:
        collecting.append(gc.isenabled())
        raise CheckpointError("far enough")

    monkeypatch.setattr(learner.session.run, "train", train)
    with own_process.restored():
        assert main(["cartpole_r2d2", "--workdir", str(tmp_path)]) == 74
    assert collecting == [False]
