"""Measurements in turn, so that other load on the machine hits all of them, and their results."""

import contextlib
import dataclasses
import functools
import multiprocessing
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar

from learner.processes.parent_death import tie_to
from learner.processes.tuning import tune_for
from learner.report.stages import num_cores
from seedrl.config import Config

P = ParamSpec("P")
Measured = TypeVar("Measured")


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
    measures: Mapping[str, Callable[[], Measured]], rounds: int
) -> dict[str, tuple[Measured, ...]]:
    """Measures each thing once a round; the measurements by name, in the order of the rounds."""
    results: dict[str, list[Measured]] = {name: [] for name in measures}
    for number in range(rounds):
        # Every other round goes backwards: a machine that slows down steadily favours none of them.
        for name in list(measures)[:: 1 if number % 2 == 0 else -1]:
            results[name].append(measures[name]())
    return {name: tuple(values) for name, values in results.items()}


def spread(values: Sequence[float]) -> Spread:
    return Spread(statistics.median(values), min(values), max(values))


def ratios(ours: Sequence[float], limits: Sequence[float]) -> tuple[float, ...]:
    # Round by round: only the two numbers of one round saw the same machine.
    return tuple(mine / limit for mine, limit in zip(ours, limits, strict=True))


def rate(
    work: Callable[[], float], seconds: float, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Repeats `work`, which returns how much it did, for `seconds`; amount per second."""
    start = clock()
    amount = work()  # at least once, however short `seconds` is
    while (elapsed := clock() - start) < seconds:
        amount += work()
    return amount / elapsed


def growth(count: Callable[[], float], seconds: float) -> float:
    """Growth per second of a count that another thread advances, over `seconds`."""
    # The clock first and last: a pause between the two never makes the rate higher.
    start, before = time.perf_counter(), count()
    time.sleep(seconds)
    grown = count() - before
    return grown / (time.perf_counter() - start)


def serial(*rates: float) -> float:
    """The rate of work that needs all of these, one after another on the same cores: 1 / Σ 1/r."""
    return 1 / sum(1 / each for each in rates)


@dataclass(frozen=True, kw_only=True)
class Result:
    """A figure and its limit, measured in turn, one number a round of each."""

    name: str
    unit: str
    limit_name: str
    ours: tuple[float, ...]
    limits: tuple[float, ...]
    conditions: Mapping[str, Any]  # what both were measured with, by name
    target: float | None = None  # the ratio to reach
    is_cost: bool = False  # less is better, so that the target is an upper bound
    details: Mapping[str, float] = field(default_factory=dict)  # further numbers, by name with unit

    @property
    def ratio(self) -> Spread:
        return spread(ratios(self.ours, self.limits))

    def to_json(self) -> dict[str, Any]:
        spreads = {"ours": spread(self.ours)._asdict() | {"rounds": self.ours}}
        spreads["limit"] = spread(self.limits)._asdict() | {"rounds": self.limits}
        return {**dataclasses.asdict(self), **spreads, "ratio": self.ratio._asdict()}

    def cells(self) -> tuple[str, ...]:
        """The result as a row of a table: figure, ours, limit, ratio with its range, target."""
        median, lowest, highest = self.ratio
        target = "" if self.target is None else f"{'≤' if self.is_cost else '≥'} {self.target:g}"
        return (
            self.name,
            f"{number(spread(self.ours).median)} {self.unit}",
            f"{number(spread(self.limits).median)} ({self.limit_name})",
            f"{median:.2f} ({lowest:.2f}..{highest:.2f})",
            target,
        )

    def note(self) -> str:
        parts = [f"{name} {value}" for name, value in self.conditions.items()]
        parts += [f"{name} {number(value)}" for name, value in self.details.items()]
        return f"{self.name}: " + "; ".join(parts)


def apart(
    config: Config, measure: Callable[P, Iterator[Result]], *args: P.args, **kwargs: P.kwargs
) -> list[Result]:
    """Results of `measure(*args, **kwargs)`, a module's function, in a process of its own."""
    # Tuned as a learner of `config` is: what memory a process keeps cannot change once it has
    # threads.
    begin = functools.partial(_begin, os.getpid(), config)
    # Not forked: jax has threads here.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(1, context, initializer=begin)
    results = pool.submit(_collect, functools.partial(measure, *args, **kwargs)).result()
    pool.shutdown()  # not after a signal, which would wait for the measurement
    return results


def _begin(parent: int, config: Config) -> None:
    tie_to(parent)  # a signal to the parent ends only that
    tune_for(config)


def _collect(measure: Callable[[], Iterator[Result]]) -> list[Result]:
    return list(measure())


def number(value: float) -> str:
    """Three digits, or all before the point."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def machine() -> dict[str, Any]:
    """The machine, versions and commit: what somebody else needs to compare."""
    import jax  # here: programs that ask for the rest of this file need none

    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": machine_in_words(),
        "cores": num_cores(),
        "devices": [device.device_kind for device in jax.local_devices()],
        "versions": {"python": platform.python_version(), **_versions()},
    }


def machine_in_words() -> str:
    commit = _commit()
    return f"{_processor()}, {num_cores()} cores, {platform.platform()}, commit {commit}"


def _commit() -> str | None:
    """The checkout's commit, with `-dirty` if files differ from it; None for an installed wheel."""
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--abbrev=40", "--dirty"]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout.strip() or None


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    # macOS and others have no such file.
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def _versions() -> dict[str, str]:
    found = {}
    for name in ("seedrl", "jax", "jaxlib", "grpcio", "numpy", "gymnasium", "ale-py", "flax"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found
