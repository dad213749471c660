"""Seconds from the start of `seedrl train cartpole_r2d2` to its first environment step.

`python -m tests.benchmarks.first_action`. A first run, which is not counted, compiles the programs.
"""

import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import tyro

_DEADLINE_SECONDS = 300.0
_POLL_SECONDS = 0.02
# Between two lines of metrics: a step is seen so much too late at most.
_INTERVAL_SECONDS = 0.2


def first_step_time(lines: Iterable[str]) -> float | None:
    """Unix time of the first line of `metrics.jsonl` with environment steps; None without one."""
    for line in lines:
        with contextlib.suppress(json.JSONDecodeError):  # it is just being written
            values = json.loads(line)
            if values["kind"] == "metrics" and values["env_steps"] > 0:
                return float(values["time_seconds"])
    return None


@contextlib.contextmanager
def _training(workdir: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "learner.cli.main", "train", "cartpole_r2d2"]
    command += ["--workdir", str(workdir), "--logging.interval-seconds", str(_INTERVAL_SECONDS)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def seconds() -> float:
    """Starts a run, waits for its first step, and ends it. Raises RuntimeError if there is none."""
    with tempfile.TemporaryDirectory(prefix="seedrl-first-") as folder:
        workdir = Path(folder) / "run"
        start = time.time()
        with _training(workdir) as process:
            while process.poll() is None and time.time() < start + _DEADLINE_SECONDS:
                time.sleep(_POLL_SECONDS)
                with contextlib.suppress(FileNotFoundError):
                    lines = (workdir / "metrics.jsonl").read_text().splitlines()
                    if (found := first_step_time(lines)) is not None:
                        return found - start
    raise RuntimeError(f"no step within {_DEADLINE_SECONDS:.0f} seconds, or the run ended")


def main(rounds: int = 5) -> None:
    """Prints the seconds of `rounds` runs, and their median."""
    seconds()
    found = sorted(seconds() for _ in range(rounds))
    print(f"median {statistics.median(found):.1f} s ({found[0]:.1f}..{found[-1]:.1f})")


if __name__ == "__main__":
    tyro.cli(main)
