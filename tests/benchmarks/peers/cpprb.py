"""Replay against cpprb: a sequence is an item, so that rows are not shared; there is no device."""

from collections.abc import Iterator
from pathlib import Path

from learner.bench.measuring import Pace, Result
from tests.benchmarks.peers import replay_stores


def run(pace: Pace, venvs: Path) -> Iterator[Result]:
    """Insertion and sampling, with and without new priorities."""
    return replay_stores.results("cpprb", pace, venvs, layouts=("items",))
