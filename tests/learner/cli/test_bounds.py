"""The command `seedrl bounds`: of a run's directory, as one object and as text."""

import json
from pathlib import Path

import pytest

from learner.cli.bounds import text
from learner.cli.main import main
from seedrl import config_io
from tests import own_process
from tests.system.processes import SMALLEST


@pytest.mark.slow
def test_a_run_is_measured_and_its_numbers_are_one_object(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text(config_io.to_json(config_io.load("cartpole_r2d2")))
    # Two devices, each of which acts in a thread of its own.
    small = [*SMALLEST, "--serving.training-slots", "4", "--learning.num-devices", "2"]
    flags = ["--seconds", "0.05", "--rounds", "1", "--json", *small]
    with own_process.restored():
        assert main(["bounds", str(tmp_path), *flags]) == 0
    found = json.loads(capsys.readouterr().out)
    for side in ("acting", "learning", "both"):
        assert found[f"{side}_steps_per_second"]["median"] > 0
    assert found["machine"]["cores"] >= 1 and found["pace"] == {"rounds": 1, "seconds": 0.05}
    lines = text(found).splitlines()
    assert len(lines) == 6 and found["binds"] in ("acting", "learning", "both")
