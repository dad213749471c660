"""Replay against cpprb: a sequence is an item, so that rows are not shared; there is no device."""

from collections.abc import Iterator
from pathlib import Path

from learner.bench.measure.interleave import Pace
from learner.bench.measure.result import Row
from tests.benchmarks.peers import replay_stores


def run(pace: Pace, venvs: Path) -> Iterator[Row]:
    """Insertion and sampling, with and without new priorities."""
    return replay_stores.rows("cpprb", pace, venvs, layouts=("items",))
