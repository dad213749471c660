"""Output whose reader or disk is gone: in processes of their own, with real pipes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import SECONDS

ROOT = Path(__file__).parents[3]
FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")

# Says something on both streams, through every layer that a run writes with, and ends with 7.
PROGRAM = """
import logging, sys
from learner.report.output import tolerating_lost_output
from learner.report.terminal import Progress
with tolerating_lost_output():
    import absl.logging
    absl.logging.use_absl_handler()  # as orbax does; at exit it closes a stream that is not its own
    logging.basicConfig(level=logging.INFO)
    progress = Progress()
    for number in range(3):
        print("out", number)
        print("out and flush", number, flush=True)
        print("err", number, file=sys.stderr)
        logging.info("log %d", number)
        progress.log(f"line {number}")
    progress.close()
sys.exit(7)
"""


def run(stdout: int, stderr: int) -> tuple[int, str, str]:
    child = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True,
        timeout=SECONDS,
    )
    return child.returncode, child.stdout or "", child.stderr or ""


def test_a_program_outlives_both_readers() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)  # nobody reads what is written
    try:
        assert run(write_end, write_end) == (7, "", "")
    finally:
        os.close(write_end)


@needs_full
def test_a_program_outlives_a_full_disk() -> None:
    with FULL.open("w") as full:
        assert run(full.fileno(), full.fileno()) == (7, "", "")
