"""The owner of a learner that waits for its command line; the learner is a stand-in."""

import json
import os
from pathlib import Path

import pytest

from learner.cli.early_learner import EarlyLearner


def _stand_in(folder: Path, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "learner").mkdir()
    # Without it the folder is no rival to an installed package of that name.
    (folder / "learner" / "__init__.py").touch()
    (folder / "learner" / "early.py").write_text(source)
    monkeypatch.chdir(folder)


def test_it_gets_its_command_line_and_then_the_end_of_stdin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _stand_in(tmp_path, "import sys; open('stdin', 'w').write(sys.stdin.read())", monkeypatch)
    with EarlyLearner() as early_learner:
        monkeypatch.setenv("OF_A_CONFIG", "1")
        early_learner.begin(["config", "--flag", "two words"])
    assert early_learner.process.wait(30) == 0
    command = json.loads((tmp_path / "stdin").read_text())
    assert command["words"] == ["config", "--flag", "two words"]
    assert command["environment"] == dict(os.environ)
    assert command["environment"]["OF_A_CONFIG"] == "1"


def test_one_that_never_got_its_words_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _stand_in(tmp_path, "import signal; signal.pause()", monkeypatch)
    with EarlyLearner() as early_learner:
        pass
    assert early_learner.process.returncode == -9


def test_the_exit_code_of_one_that_has_died_is_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _stand_in(tmp_path, "raise SystemExit(5)", monkeypatch)
    with EarlyLearner() as early_learner:
        early_learner.process.wait(30)
        early_learner.begin(["config"])
    assert early_learner.process.returncode == 5
