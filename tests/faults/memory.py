"""What a process takes over time, and whether it grows."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

_MIB = 2**20


class Sample(NamedTuple):
    """What a process takes at a time.

    Attributes:
      pid: which process.
      seconds: monotonic.
      rss_mib: memory; descriptors, threads: how many.
    """

    pid: int
    seconds: float
    rss_mib: float
    descriptors: int
    threads: int


def sample(pid: int, seconds: float) -> Sample | None:
    """None if there is no such process."""
    folder = Path(f"/proc/{pid}")
    try:
        pages = int((folder / "statm").read_text().split()[1])
        descriptors = len(list((folder / "fd").iterdir()))
        threads = len(list((folder / "task").iterdir()))
    except OSError:
        return None
    return Sample(pid, seconds, pages * 4096 / _MIB, descriptors, threads) if pages else None


class Slope(NamedTuple):
    """A least-squares line: how much in an hour, and the standard error of that."""

    per_hour: float
    error: float


def slope(samples: Sequence[Sample]) -> Slope | None:
    """How fast memory grows: one slope for all processes, each with a level of its own.

    The error takes neighbours for independent, so a slow wave makes it too small. None for too few.
    """
    times, sizes = [], []
    pids = {each.pid for each in samples}
    for pid in pids:
        mine = [each for each in samples if each.pid == pid]
        hours = np.array([each.seconds for each in mine]) / 3600
        rss = np.array([each.rss_mib for each in mine])
        times.append(hours - hours.mean())
        sizes.append(rss - rss.mean())
    if len(samples) < len(pids) + 3:
        return None
    time, size = np.concatenate(times), np.concatenate(sizes)
    spread = float(time @ time)
    found = float(time @ size) / spread
    rest = size - found * time
    error = float(np.sqrt(rest @ rest / (len(samples) - len(pids) - 1) / spread))
    return Slope(round(found, 2), round(error, 2))
