"""A learner that gets its command line on stdin."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from seedrl.errors import ExitCode


@pytest.mark.parametrize(
    ("words", "code", "begins"),
    [
        (None, ExitCode.OK, ""),
        (["no_such_config", "--workdir", "w"], ExitCode.USAGE, "python -m learner: error: "),
    ],
)
def test_it_does_what_the_words_on_stdin_say(
    tmp_path: Path, words: list[str] | None, code: ExitCode, begins: str
) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "learner.early"],
        input="" if words is None else json.dumps(words) + "\n",
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        check=False,
    )
    assert ended.returncode == code
    assert ended.stderr.startswith(begins)
    assert bool(ended.stderr) == bool(begins)
