"""The arithmetic of benchmarks, worked by hand."""

import pytest

from learner.bench.alternation import Spread, alternate, rate, ratios, serial, spread


def test_things_are_measured_in_turn_and_every_other_round_backwards() -> None:
    order: list[str] = []
    values = iter(range(1, 10))

    def measure(name: str) -> float:
        order.append(name)
        return next(values)

    results = alternate({name: lambda n=name: measure(n) for name in "abc"}, rounds=3)
    assert order == ["a", "b", "c", "c", "b", "a", "a", "b", "c"]
    assert results == {"a": (1, 6, 7), "b": (2, 5, 8), "c": (3, 4, 9)}


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


def test_serial_rates_add_their_times() -> None:
    assert serial(4.0) == 4.0
    assert serial(3.0, 6.0) == 2.0
    assert serial(2.0, 4.0, 4.0) == 1.0
