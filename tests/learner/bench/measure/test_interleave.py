"""The arithmetic of benchmarks, worked by hand."""

import pytest

from learner.bench.measure.interleave import (
    Spread,
    growth,
    interleave,
    rate,
    ratios,
    serial,
    spread,
)


def test_things_are_measured_in_turn_and_every_other_round_backwards() -> None:
    order: list[str] = []
    values = iter(range(1, 10))

    def measure(name: str) -> float:
        order.append(name)
        return next(values)

    measured = interleave({name: lambda n=name: measure(n) for name in "abc"}, rounds=3)
    assert order == ["a", "b", "c", "c", "b", "a", "a", "b", "c"]
    assert measured == {"a": (1, 6, 7), "b": (2, 5, 8), "c": (3, 4, 9)}


def test_a_spread_is_median_lowest_and_highest() -> None:
    assert spread([4.0, 1.0, 9.0]) == Spread(median=4.0, lowest=1.0, highest=9.0)
    assert spread([4.0, 1.0, 9.0, 2.0]) == Spread(median=3.0, lowest=1.0, highest=9.0)


def test_ratios_belong_to_rounds() -> None:
    # A machine that is ten times slower in the second round changes nothing.
    assert ratios([6.0, 0.6, 8.0], [12.0, 1.2, 10.0]) == (0.5, 0.5, 0.8)
    with pytest.raises(ValueError):
        ratios([1.0], [1.0, 2.0])


def test_a_rate_is_the_amount_over_the_time_that_it_took() -> None:
    times = iter([100.0, 100.4, 100.8, 101.25])
    # Three pieces of work of 5, in 1.25 seconds: the one that is begun is finished.
    assert rate(lambda: 5, 1.0, clock=lambda: next(times)) == 12.0


def test_work_is_done_at_least_once() -> None:
    times = iter([0.0, 2.0])
    assert rate(lambda: 3, 0.001, clock=lambda: next(times)) == 1.5


class Timeline:
    """A clock that only sleeping advances, and a count that grows by 10 at each given time."""

    def __init__(self, *growing: float) -> None:
        self.now, self._growing = 100.0, growing

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def count(self) -> float:
        return 7 + 10 * sum(self.now - 100.0 >= moment for moment in self._growing)

    def growth(self, seconds: float) -> float:
        return growth(self.count, seconds, clock=lambda: self.now, sleep=self.sleep)


def test_growth_is_what_came_on_top_over_the_time() -> None:
    assert Timeline(0.5, 1.5, 1.75).growth(2.0) == 15.0


def test_growth_waits_for_the_first_of_it() -> None:
    assert Timeline(10.0).growth(1.0) == pytest.approx(1.0, rel=1e-3)


def test_growth_gives_up() -> None:
    with pytest.raises(RuntimeError, match="nothing was done for 60 seconds"):
        Timeline(62.0).growth(1.0)


def test_serial_rates_add_their_times() -> None:
    assert serial(4.0) == 4.0
    assert serial(3.0, 6.0) == 2.0
    assert serial(2.0, 4.0, 4.0) == 1.0
