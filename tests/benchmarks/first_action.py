"""Seconds from the start of `seedrl train cartpole_r2d2` to its first environment step.

`python -m tests.benchmarks.first_action [ROUNDS]`. A first run, not counted, compiles the programs.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

from tests.benchmarks.started_runs import program
from tests.system.processes import records

_DEADLINE_SECONDS = 300.0
_POLL_SECONDS = 0.02
# Between two lines of metrics: a step is seen so much too late at most.
_INTERVAL_SECONDS = 0.2


def seconds() -> float:
    """Starts a run, waits for its first step, and ends it. Raises RuntimeError if there is none."""
    words = ["learner.cli.main", "train", "cartpole_r2d2"]
    words += ["--logging.interval-seconds", str(_INTERVAL_SECONDS)]
    with tempfile.TemporaryDirectory(prefix="seedrl-first-") as name:
        folder, start = Path(name), time.time()
        workdir = folder / "run"
        with program([*words, "--workdir", str(workdir)], folder) as process:
            while process.poll() is None and time.time() < start + _DEADLINE_SECONDS:
                time.sleep(_POLL_SECONDS)
                for values in records(workdir):
                    if values["env_steps"] > 0:
                        return float(values["time_seconds"]) - start
    raise RuntimeError(f"no step within {_DEADLINE_SECONDS:.0f} seconds, or the run ended")


if __name__ == "__main__":
    seconds()
    found = sorted(seconds() for _ in range(int(sys.argv[1]) if sys.argv[1:] else 5))
    print(f"median {statistics.median(found):.1f} s ({found[0]:.1f}..{found[-1]:.1f})")
