"""A learner that gets its command line on stdin."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from seedrl.errors import ExitCode

VARIABLES = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def run(stdin: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "learner.early"],
        input=stdin,
        capture_output=True,
        text=True,
        cwd=folder,
        env={**VARIABLES, **variables},
        check=False,
    )


def test_it_ends_if_nobody_says_what_to_do(tmp_path: Path) -> None:
    ended = run("", tmp_path)
    assert (ended.returncode, ended.stdout, ended.stderr) == (ExitCode.OK, "", "")


# With other variables than it was started with it begins anew: what jax has read then is of now.
@pytest.mark.parametrize("platforms", ["cpu", "changed"])
def test_it_is_the_learner_of_the_words_and_variables_on_stdin(
    tmp_path: Path, platforms: str
) -> None:
    (tmp_path / "config.py").write_text(
        "import os, jax\n"
        "def config():\n"
        "  raise ValueError(os.environ['JAX_PLATFORMS'], jax.config.jax_platforms)\n"
    )
    command = {
        "words": ["config.py", "--workdir", "w"],
        "environment": {**VARIABLES, "JAX_PLATFORMS": platforms},
    }
    ended = run(json.dumps(command) + "\n", tmp_path, JAX_PLATFORMS="cpu")
    assert ended.returncode == ExitCode.USAGE
    assert ended.stderr.startswith("python -m learner: error: ")
    assert f"'{platforms}', '{platforms}'" in ended.stderr


def test_an_import_that_fails_is_a_defect_and_not_a_missed_target(tmp_path: Path) -> None:
    (tmp_path / "rich.py").write_text("raise ImportError('broken')")
    ended = run("", tmp_path, PYTHONPATH=f"{tmp_path}{os.pathsep}{VARIABLES['PYTHONPATH']}")
    assert ended.returncode == ExitCode.INTERNAL
