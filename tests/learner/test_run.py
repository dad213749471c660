"""What a run does before anything moves."""

from pathlib import Path

import pytest

from learner.run import _metrics
from learner.run_folder import RunFolder
from seedrl.checkpoints import Checkpoint


@pytest.mark.parametrize(("resumed", "expected"), [(True, 30.0), (False, 0.0)])
def test_the_time_of_a_run_goes_on_when_it_is_resumed(
    tmp_path: Path, resumed: bool, expected: float
) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"elapsed_seconds": 30.0}\n')
    checkpoint = Checkpoint(1, tmp_path, {"env_steps": 100}) if resumed else None
    folder = RunFolder(tmp_path)
    metrics = _metrics(folder, checkpoint)
    values = metrics.flush(env_steps=110, updates=2)
    metrics.close()
    folder.close()
    assert expected <= values["elapsed_seconds"] < expected + 20.0
    assert metrics._tensorboard.purge_step == (101 if resumed else 0)
