"""Where `seedrl evaluate` writes."""

import shutil
from pathlib import Path

import pytest

from learner.cli.evaluate import logs_of


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
