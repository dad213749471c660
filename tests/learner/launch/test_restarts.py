"""Budgets of restarts, with a clock of their own."""

from learner.launch.restarts import Restarts


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_who_has_used_its_restarts_rests_a_minute_and_is_heard_of_once() -> None:
    clock = Clock()
    restarts = Restarts(["a", "b"], 2, clock)
    assert [restarts.died("a") for _ in range(3)] == ["again", "again", "rests"]
    assert restarts.used("a") == 2
    assert restarts.seconds_left() == 60.0 and restarts.take_due() == []
    clock.now = 60.0
    assert restarts.take_due() == ["a"] and restarts.take_due() == []
    assert restarts.seconds_left() is None
    clock.now = 61.0
    assert restarts.died("a") == "still rests"
    clock.now = 121.0
    assert restarts.take_due() == ["a"]


def test_who_has_lived_for_a_minute_after_its_rest_has_its_budget_back() -> None:
    clock = Clock()
    restarts = Restarts(["a", "b"], 1, clock)
    assert [restarts.died("a") for _ in range(2)] == ["again", "rests"]
    clock.now = 60.0
    assert restarts.take_due() == ["a"]
    clock.now = 120.0
    assert [restarts.died("a") for _ in range(2)] == ["again", "rests"]


def test_without_restarts_too_a_rest_is_heard_of_again_after_a_minute_of_life() -> None:
    clock = Clock()
    restarts = Restarts(["a", "b"], 0, clock)
    assert restarts.died("a") == "rests"
    clock.now = 60.0
    assert restarts.take_due() == ["a"]
    clock.now = 119.0
    assert restarts.died("a") == "still rests"
    clock.now = 179.0
    assert restarts.take_due() == ["a"]
    clock.now = 239.0
    assert restarts.died("a") == "rests"


def test_when_all_rest_nobody_is_left() -> None:
    clock = Clock()
    restarts = Restarts(["a", "b"], 0, clock)
    assert [restarts.died(name) for name in "ab"] == ["rests", "all rest"]


def test_who_is_begun_during_its_rest_does_not_rest_when_all_others_do() -> None:
    clock = Clock()
    restarts = Restarts(["a", "b"], 1, clock)
    assert [restarts.died("a") for _ in range(2)] == ["again", "rests"]
    restarts.begun("a")
    restarts.begun("b")  # which did not rest
    assert restarts.take_due() == [] and restarts.seconds_left() is None
    assert [restarts.died("b") for _ in range(2)] == ["again", "rests"]
    # It is as if its rest had been over.
    clock.now = 59.0
    assert restarts.died("a") == "all rest"
