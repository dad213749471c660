"""docs/own_environment.md is a package that trains, and docs/runs.md plays its policy."""

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import started
from tests.documented import ROOT, write_files
from tests.patience import SECONDS

PAGE = ROOT / "docs" / "own_environment.md"
SHOWN = PAGE.read_text()
RUNS = (ROOT / "docs" / "runs.md").read_text()


@pytest.mark.slow
@pytest.mark.gate  # what it imports acts: test_examples.py
def test_the_snippets_train_together_and_act_in_a_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(PAGE, tmp_path)
    flags = (
        "--workdir run --serving.training-slots 1 --serving.evaluation-slots 1 "
        "--replay.min-steps 100 --learning.batch-sequences 4 --learning.total-steps 300 "
        "--env-servers 1 --evaluation.target-return None"
    )
    run = started.start(
        ["learner.cli.main", "train", "my_config.py", *shlex.split(flags)],
        cwd=tmp_path,
        variables=started.variables(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    _, said = run.communicate(timeout=SECONDS)
    assert run.returncode == 0, said
    assert (tmp_path / "run" / "learning_curve.png").stat().st_size > 0
    monkeypatch.syspath_prepend(tmp_path)
    (script,) = re.findall(r"```python\n(import seedrl\n\nact = .*?)```", RUNS, re.DOTALL)
    names: dict[str, Any] = {"observation": np.zeros(5, np.float32), "reward": 1.0}
    # This run names code of a folder of its own, which a reader has to allow.
    own = f'"{tmp_path / "run"}", allow="{tmp_path}"'
    exec(script.replace('"runs/mine"', own), names)
    assert names["action"] in range(4)
    # The same run, played as the page plays `mine.py`.
    (tmp_path / "mine.py").write_text("from my_package.recall import make\n")
    (script,) = re.findall(r"```python\n(import seedrl\nfrom mine .*?)```", SHOWN, re.DOTALL)
    exec(script.replace('"runs/mine", best=True', own), names)
    assert names["is_over"] and names["reward"] in (0, 1)


def _pattern(line: str) -> str:
    """A shown line as a pattern: an ellipsis is any text, a speed any number."""
    pattern = re.escape(line).replace("…", ".*")
    return re.sub(r"[\d,]+(?=\\ steps/s)", r"[\\d,]+", pattern)


def _check_env(folder: Path, arguments: str) -> tuple[int, list[str]]:
    done = started.start(
        ["learner.cli.main", "check-env", *shlex.split(arguments)],
        cwd=folder,
        variables=started.variables(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, _ = done.communicate(timeout=SECONDS)
    return done.returncode, out.splitlines()


_BLOCKS = re.findall(r"```console\n\$ seedrl check-env (.*)\n((?:.*\n)*?)```", SHOWN)


def test_the_snippets_environment_is_checked_as_shown(tmp_path: Path) -> None:
    write_files(PAGE, tmp_path)
    ((arguments, shown),) = _BLOCKS
    code, lines = _check_env(tmp_path, arguments)
    assert code == 0
    for line, expected in zip(lines, shown.splitlines(), strict=True):
        assert re.fullmatch(_pattern(expected), line)


@pytest.mark.gate  # what it finds: tests/envs_server/check/test_environment.py
def test_a_wrong_dtype_is_reported_as_shown(tmp_path: Path) -> None:
    write_files(PAGE, tmp_path)
    ((arguments, _),) = _BLOCKS
    path = tmp_path / "my_package" / "recall.py"
    path.write_text(path.read_text().replace("np.eye(5, dtype=np.float32)[4]", "np.eye(5)[4]"))
    code, (line, *_) = _check_env(tmp_path, arguments)
    (expected,) = re.findall(r"^error .*", SHOWN, re.MULTILINE)
    assert code == 3 and re.fullmatch(_pattern(expected), line)
