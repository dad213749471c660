"""Token buckets, on a clock that is moved by hand."""

from learner.serving.access import pace
from learner.serving.access.pace import Pace


class _Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def _taken(calls: Pace, address: str, number: int) -> int:
    return sum(calls.take(address) for _ in range(number))


def test_a_burst_and_then_so_many_a_second_of_each_address() -> None:
    clock = _Clock()
    calls = Pace(4.0, 10.0, clock)
    assert _taken(calls, "a", 50) == 10
    clock.now += 0.25
    assert _taken(calls, "a", 50) == 1
    clock.now += 1.0
    assert _taken(calls, "a", 50) == 4
    assert _taken(calls, "b", 50) == 10
    clock.now += 1000.0
    assert _taken(calls, "a", 50) == 10


def test_who_is_refused_loses_nothing_by_it() -> None:
    clock = _Clock()
    calls = Pace(1.0, 1.0, clock)
    assert calls.take("a")
    had_one = []
    for _ in range(9):
        clock.now += 0.125
        had_one.append(calls.take("a"))
    assert had_one == [*[False] * 7, True, False]


def test_who_is_charged_waits_longer_but_not_for_ever() -> None:
    clock = _Clock()
    calls = Pace(1.0, 4.0, clock)
    calls.charge("a", 6.0)
    clock.now += 2.5
    assert not calls.take("a")
    clock.now += 0.5
    assert _taken(calls, "a", 5) == 1
    calls.charge("a", 1000.0)
    clock.now += 4.5
    assert not calls.take("a")
    clock.now += 0.5
    assert _taken(calls, "a", 5) == 1
    assert _taken(calls, "b", 5) == 4


def test_an_address_that_was_quiet_for_long_is_forgotten_for_a_new_one() -> None:
    calls = Pace(1.0, 1.0, _Clock())
    assert calls.take("a") and calls.take("b")
    for number in range(pace._MOST_ADDRESSES - 1):
        assert not calls.take("b")  # so it is not the quietest
        assert calls.take(str(number))
    assert len(calls._buckets) == pace._MOST_ADDRESSES
    assert not calls.take("b")
    assert calls.take("a")
