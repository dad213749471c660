"""A run whose output nobody reads, or whose log has no room, ends as it would have, and saved."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from seedrl.storage.checkpoints import latest

sys.path.insert(0, str(Path(__file__).parent))

import processes
from processes import ROOT, TINY, TRAIN

from tests.patience import SECONDS, wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full"),
]

TOTAL_STEPS = 600


def start(workdir: Path, output: int, *flags: str) -> subprocess.Popen[bytes]:
    words = ["cartpole_r2d2", "--workdir", str(workdir), *TINY, *flags]
    return subprocess.Popen(
        [sys.executable, "-m", *TRAIN, *words],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        cwd=workdir.parent,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def saved_steps(workdir: Path) -> int:
    found = latest(workdir / "checkpoints")
    return 0 if found is None else int(found.meta["env_steps"])


def test_a_run_outlives_the_reader_of_its_output(tmp_path: Path) -> None:
    # `seedrl train ... 2>&1 | head -1`
    read_end, write_end = os.pipe()
    run = start(tmp_path / "run", write_end, f"--learning.total-steps={TOTAL_STEPS}")
    os.close(write_end)
    try:
        with os.fdopen(read_end) as reader:
            assert ", serving " in reader.readline()
        assert run.wait(SECONDS) == 0
    finally:
        run.kill()
    assert saved_steps(tmp_path / "run") >= TOTAL_STEPS


def test_a_run_whose_log_has_no_room_is_saved_on_sigterm(tmp_path: Path) -> None:
    workdir = tmp_path / "run"
    with open("/dev/full", "w") as full:
        run = start(workdir, full.fileno())
    try:
        wait_until(
            lambda: (
                run.poll() is not None
                or any(line["updates"] > 0 for line in processes.records(workdir))
            )
        )
        run.send_signal(signal.SIGTERM)
        assert run.wait(SECONDS) == 0
    finally:
        run.kill()
    assert saved_steps(workdir) > 0
