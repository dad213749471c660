"""The tests of several devices once more, in a process with eight of them: 8 + 0 and 4 + 4."""

import os
import subprocess
import sys

import pytest

_TESTS = [
    "tests/system/test_devices.py",
    "tests/learner/learning/test_learn_step.py",
    "-k",
    "devices",
]


@pytest.mark.gate
@pytest.mark.timeout(900)
def test_eight_devices_act_and_learn_as_one() -> None:
    # Collectives need twice as many threads as devices, see conftest.py.
    variables = {**os.environ, "SEEDRL_TEST_DEVICES": "8", "PJRT_NPROC": "16"}
    variables.pop("PYTEST_XDIST_WORKER", None)
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "0", "-q", *_TESTS],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout
