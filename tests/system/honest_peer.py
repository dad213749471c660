"""An env server that steps and notes how long each answer took: `... honest_peer ADDRESS FILE`.

It is one of another host: its messages take gRPC, the way of all whom a learner does not know, and
not a link. Its environments take their time, so that it waits for that and not for a core.
"""

import contextlib
import itertools
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tests.learner.serving.scripted_env_server import FIRST, MID, Client
from tests.patience import wait_until
from tests.system.processes import ROOT

ENVS = 4
_STEP_SECONDS = 0.005


class Answers(NamedTuple):
    """What it saw within a time: answers a second, and how long the slowest of 100 took."""

    rate: float
    p99_seconds: float


class HonestPeer:
    """The process, from outside."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def answers(self, start: float, end: float) -> Answers:
        """Of a time, on the clock of all processes."""
        wait_until(lambda: self._last() >= end, "the honest env server is not answered any more")
        times = np.loadtxt(self._file, ndmin=2)
        taken = times[(start <= times[:, 0]) & (times[:, 0] <= end), 1]
        return Answers(len(taken) / (end - start), float(np.quantile(taken, 0.99)))

    def during(self, seconds: float) -> Answers:
        """Of the time from now on."""
        start = time.monotonic()
        return self.answers(start, start + seconds)

    def _last(self) -> float:
        lines = self._file.read_text().splitlines()[:-1] if self._file.exists() else []
        return float(lines[-1].split()[0]) if lines else 0.0


@contextlib.contextmanager
def honest_peer(address: str, folder: Path) -> Iterator[HonestPeer]:
    """One that has begun to step; killed at the end."""
    file = folder / "answers"
    command = [sys.executable, "-m", "tests.system.honest_peer", address, str(file)]
    with subprocess.Popen(command, cwd=ROOT) as process:
        try:
            peer = HonestPeer(file)
            wait_until(lambda: peer._last() > 0 or process.poll() is not None)
            yield peer
        finally:
            process.kill()


def _main(address: str, file: Path) -> None:
    with Client(address) as client, file.open("w", buffering=1) as lines:
        client.shake_hands(num_envs=ENVS)
        for number in itertools.count():
            sent = time.monotonic()
            client.step(number, MID if number else FIRST)
            client.receive()
            now = time.monotonic()
            lines.write(f"{now:.6f} {now - sent:.6f}\n")
            time.sleep(_STEP_SECONDS)


if __name__ == "__main__":
    _main(sys.argv[1], Path(sys.argv[2]))
