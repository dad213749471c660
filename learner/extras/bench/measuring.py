"""Measurements in turn, so that other load on the machine hits all of them, and their results."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from seedrl.config import Config

_TICK_SECONDS = 0.002
_PATIENCE_SECONDS = 60.0
_PREFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


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
        for name in list(measures)[:: 1 if number % 2 == 0 else -1]:
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
    """Growth per second of a count that another thread advances, over `seconds` and at least 1.

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


@dataclass(frozen=True, kw_only=True)
class Result:
    """A figure and its limit, measured in turn.

    Attributes:
      name: benchmark and figure.
      unit: of both.
      limit_name: what the limit is.
      ours, limits: one number a round.
      conditions: what both were measured with, by name.
      target: the ratio to reach; None if there is none.
      is_cost: whether less is better, so that the target is an upper bound.
      details: further numbers, by name with unit.
    """

    name: str
    unit: str
    limit_name: str
    ours: tuple[float, ...]
    limits: tuple[float, ...]
    conditions: Mapping[str, Any]
    target: float | None = None
    is_cost: bool = False
    details: Mapping[str, float] = field(default_factory=dict)

    @property
    def ratio(self) -> Spread:
        """Ratio of ours to the limit, round by round."""
        return spread(ratios(self.ours, self.limits))

    @property
    def is_met(self) -> bool | None:
        """Whether the median ratio reaches the target; None without one."""
        if self.target is None:
            return None
        median = self.ratio.median
        return median <= self.target if self.is_cost else median >= self.target

    def to_json(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {
            "name": self.name,
            "unit": self.unit,
            "limit_name": self.limit_name,
            "ours": spread(self.ours)._asdict() | {"rounds": list(self.ours)},
            "limit": spread(self.limits)._asdict() | {"rounds": list(self.limits)},
            "ratio": self.ratio._asdict(),
            "target": self.target,
            "is_cost": self.is_cost,
            "is_met": self.is_met,
            "conditions": dict(self.conditions),
            "details": dict(self.details),
        }

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
        """The conditions and the further numbers in one line."""
        parts = [f"{name} {value}" for name, value in self.conditions.items()]
        parts += [f"{name} {number(value)}" for name, value in self.details.items()]
        return f"{self.name}: " + "; ".join(parts)


def conditions(config: Config, **fields: Any) -> dict[str, Any]:
    """Window, stride and network of a configuration, its replay ratio, and `fields` on top.

    A field that is None or "" plays no part, and is left out.
    """
    window = config.agent.window
    described = {
        "replay ratio": getattr(config.replay, "ratio", None),
        "window": f"{window.burn_in} + {window.unroll} + {window.bootstrap}",
        "stride": window.stride,
        "network": network_name(config.agent),
        **{name.replace("_", " "): value for name, value in fields.items()},
    }
    return {name: value for name, value in described.items() if value not in (None, "")}


def network_name(agent: Any) -> str:
    """The network of an agent's configuration in a few words."""
    network: Any = getattr(agent, "network", agent)
    if not hasattr(network, "torso"):
        return type(network).__name__
    core = "" if network.core == "none" else f", {network.core} {network.core_size}"
    stack = "" if network.frame_stack in (1, None) else f" of {network.frame_stack} frames"
    sizes = "x".join(map(str, network.torso_sizes))
    return f"{network.torso}{stack} {sizes}{core}, {network.dtype}"


def number(value: float) -> str:
    """Three digits, and a prefix for thousands."""
    for factor, prefix in _PREFIXES:
        if abs(value) >= factor:
            return f"{value / factor:.3g}{prefix}"
    return f"{value:.3g}"
