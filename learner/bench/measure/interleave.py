"""Measuring several things interleaved, so that whatever else the machine does hits all of them."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

_TICK_SECONDS = 0.002
_PATIENCE_SECONDS = 60.0


class Pace(NamedTuple):
    """How long to measure: `seconds` for each thing in each of `rounds` rounds."""

    rounds: int
    seconds: float


class Spread(NamedTuple):
    """The median of a few measurements, and the lowest and highest of them."""

    median: float
    lowest: float
    highest: float


def interleave(
    measures: Mapping[str, Callable[[], float]], rounds: int
) -> dict[str, tuple[float, ...]]:
    """Measures each thing once a round; the measurements by name, in the order of the rounds.

    Every other round goes backwards: a machine that slows down steadily favours none of them.
    """
    results: dict[str, list[float]] = {name: [] for name in measures}
    for number in range(rounds):
        names = list(measures)[:: 1 if number % 2 == 0 else -1]
        for name in names:
            results[name].append(measures[name]())
    return {name: tuple(values) for name, values in results.items()}


def spread(values: Sequence[float]) -> Spread:
    """Median, lowest and highest of `values`, of which there must be one."""
    return Spread(statistics.median(values), min(values), max(values))


def ratios(ours: Sequence[float], limits: Sequence[float]) -> tuple[float, ...]:
    """The ratio of each round: only the two numbers of one round saw the same machine."""
    return tuple(mine / limit for mine, limit in zip(ours, limits, strict=True))


def rate(
    work: Callable[[], float], seconds: float, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Repeats `work`, which returns how much it did, for `seconds`; amount per second."""
    start = clock()
    amount = work()
    while (elapsed := clock() - start) < seconds:
        amount += work()
    return amount / elapsed


def growth(
    count: Callable[[], float],
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> float:
    """How much a second somebody else adds to a count, over `seconds` and until it has grown.

    Raises RuntimeError if it has not grown after a minute.
    """
    # The clock first and last: a pause between the two never makes the rate higher.
    start, before = clock(), count()
    sleep(seconds)
    while (after := count()) == before:
        if clock() - start > seconds + _PATIENCE_SECONDS:
            raise RuntimeError(f"nothing was done for {_PATIENCE_SECONDS:.0f} seconds")
        sleep(_TICK_SECONDS)
    return (after - before) / (clock() - start)


def serial(*rates: float) -> float:
    """The rate of work that needs all of these, one after another on the same cores: 1 / Σ 1/r."""
    return 1 / sum(1 / each for each in rates)
