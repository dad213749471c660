"""Where `seedrl evaluate` writes."""

import shutil
from pathlib import Path

import pytest

from learner.cli.evaluate import logs_of, run
from seedrl import config_io
from seedrl.errors import ConfigError
from seedrl.run_files import CONFIG, FINAL_SCORE


def test_a_run_that_may_only_be_read_is_evaluated_with_logs_elsewhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert logs_of(tmp_path) == tmp_path / "evaluation_logs"
    assert not capsys.readouterr().err
    logs = logs_of(Path("/proc"))  # nobody can write there
    try:
        assert logs.is_dir() and f"logs of env servers are in {logs}" in capsys.readouterr().err
    finally:
        shutil.rmtree(logs)


def test_a_score_that_could_not_be_saved_is_refused_before_it_is_played(tmp_path: Path) -> None:
    (tmp_path / CONFIG).write_text(config_io.to_json(config_io.load("cartpole_ppo")))
    (tmp_path / FINAL_SCORE).mkdir()
    with pytest.raises(ConfigError) as caught:
        run([str(tmp_path), "--save"])
    assert "--save" in str(caught.value)
