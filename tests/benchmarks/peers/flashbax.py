"""Replay against Flashbax, which holds sequences as items or cuts them from streams."""

from collections.abc import Iterator
from pathlib import Path

from learner.bench.measuring import Pace, Result
from tests.benchmarks.peers import replay_stores

TARGET = 1.1
LAYOUTS = ("items", "trajectory", "trajectory, time-major")


def run(pace: Pace, venvs: Path) -> Iterator[Result]:
    """Items, with the carry; trajectories, without it, but with shared rows, in either order."""
    return replay_stores.results("flashbax", pace, venvs, layouts=LAYOUTS, target=TARGET)
