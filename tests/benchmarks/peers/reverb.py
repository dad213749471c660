"""Replay against Reverb, which shares rows of a stream in chunks."""

from collections.abc import Iterator
from pathlib import Path

from learner.bench.measuring import Pace, Result
from tests.benchmarks.peers import replay_stores

TARGET = 1.3


def run(pace: Pace, venvs: Path) -> Iterator[Result]:
    """Insertion and sampling, with and without new priorities."""
    return replay_stores.results(
        "reverb", pace, venvs, layouts=("trajectory",), target=TARGET, environment={}
    )
