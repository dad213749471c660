"""What a signal during the imports of a learner ends with."""

import subprocess
import sys

import pytest

from tests.patience import SECONDS

_STOPPED = """
import signal, sys, types

import learner.cli

imported = types.ModuleType("learner.cli.learner")
imported.main = lambda: signal.raise_signal(signal.SIGTERM)
sys.modules["learner.cli.learner"] = learner.cli.learner = imported
from learner.__main__ import main

main()
"""


@pytest.mark.parametrize(
    ("words", "code"), [([], 0), (["--hosts", "2"], 143), (["--hosts=2"], 143)]
)
def test_a_host_of_several_that_is_stopped_early_is_not_taken_for_done(
    words: list[str], code: int
) -> None:
    command = [sys.executable, "-c", _STOPPED, "cartpole_r2d2", *words]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    assert (ended.returncode, "before it had begun" in ended.stderr) == (code, True)
