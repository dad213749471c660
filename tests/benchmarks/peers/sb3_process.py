"""Training with Stable-Baselines3 in its own virtual environment, followed line by line."""

import json
import os
import subprocess
import time
import tomllib
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

from tests.benchmarks.peers.virtual_environment import PROGRAMS

_TAIL_CHARACTERS = 2000


def tasks() -> dict[str, dict[str, Any]]:
    """What can be trained, by name: the tables of `sb3_tasks.toml`."""
    return tomllib.loads((PROGRAMS / "sb3_tasks.toml").read_text())


def train(
    interpreter: Path, task: Mapping[str, Any], *, seed: int, log: Path
) -> Generator[dict[str, Any], None, None]:
    """Trains in a process that is started now; what it says, as it says it.

    Args:
      task: a table of `tasks`.
      seed: of the run.
      log: file for what else the process writes; it works in that folder.

    Raises RuntimeError with the end of the log if the process fails.
    """
    plan = {**task, "seed": seed, "started": time.time()}
    command = [interpreter.absolute(), PROGRAMS / "sb3_learning.py", json.dumps(plan)]
    # Ours would otherwise be found before the peer's own packages.
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    with (
        log.open("w") as messages,
        subprocess.Popen(
            command,
            env=environment,
            cwd=log.parent,
            stdout=subprocess.PIPE,
            stderr=messages,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        try:
            yield from map(json.loads, process.stdout)
        except BaseException:  # whoever listens has left
            process.terminate()
            raise
    if process.returncode != 0:
        tail = log.read_text()[-_TAIL_CHARACTERS:]
        raise RuntimeError(
            f"{task['algorithm']} on {task['environment']} ended with {process.returncode}. Its "
            f"last messages:\n{tail}"
        )
