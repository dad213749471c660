"""Budgets of failures, with a clock of their own."""

from envs_server.faults.quarantine import Budget, Quarantine


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def _working(num_envs: int, clock: Clock, remembered: str = "") -> Quarantine:
    quarantine = Quarantine(num_envs, clock=clock, remembered=remembered)
    quarantine.has_worked = True
    return quarantine


def test_an_environment_that_fails_too_often_in_a_minute_is_left_out_and_no_other() -> None:
    quarantine = _working(4, Clock())
    for number in range(1, 4):
        assert quarantine.failed(2, "no licence") == f"no licence (failure {number} within an hour)"
    assert quarantine.failed(1, "no display") == "no display (failure 1 within an hour)"
    assert (quarantine.live, quarantine.reason) == ([0, 1, 2, 3], "")
    reason = "environment 2 is quarantined after failure 4 within an hour: no licence"
    assert quarantine.failed(2, "no licence") == f"{reason}; 3 of 4 environments go on"
    assert (quarantine.live, quarantine.num_out, quarantine.reason) == ([0, 1, 3], 1, reason)


def test_failures_are_forgotten_after_a_minute_and_an_hour() -> None:
    clock = Clock()
    quarantine = _working(2, clock)
    for _ in range(10):
        quarantine.failed(0, "no licence")
        clock.now += 60.0
    assert quarantine.live == [0, 1]
    clock.now = 3600.0  # forgets the first
    quarantine.failed(0, "no licence")
    assert quarantine.live == [0, 1]
    clock.now += 59.0
    quarantine.failed(0, "no licence")
    assert quarantine.live == [1]


def test_the_learner_says_what_is_too_often() -> None:
    quarantine = _working(2, Clock())
    quarantine.budget = Budget(per_minute=1, per_hour=1)
    quarantine.failed(0, "no licence")
    quarantine.failed(0, "no licence")
    assert quarantine.live == [1]


def test_a_second_hang_within_an_hour_is_one_too_many() -> None:
    clock = Clock()
    quarantine = _working(2, clock)
    quarantine.failed(0, "hangs", ends_process=True)
    clock.now = 1800.0
    quarantine.failed(0, "raises")
    assert quarantine.live == [0, 1]
    quarantine.failed(0, "hangs", ends_process=True)
    assert quarantine.live == [1]


def test_what_fails_without_being_known_counts_against_all() -> None:
    quarantine = _working(3, Clock())
    lines = [quarantine.failed(None, "step 3 of group 0: boom") for _ in range(4)]
    assert quarantine.live == []
    assert lines[-1] == "step 3 of group 0: boom (failure 4 within an hour, of nobody knows which)"


def test_before_anything_has_worked_two_that_fail_are_a_defect_and_one_alone_is_left_out() -> None:
    quarantine = Quarantine(3, clock=Clock())
    assert not quarantine.is_defect(1) and quarantine.is_defect(None)
    quarantine.failed(1, "no licence")
    assert not quarantine.is_defect(1) and quarantine.is_defect(0)
    quarantine.failed(1, "no licence")
    assert quarantine.live == [0, 2]
    assert quarantine.is_defect(0)
    quarantine.has_worked = True
    assert not quarantine.is_defect(0)
    assert Quarantine(1).is_defect(0)


def test_the_process_that_takes_its_place_knows_what_it_knew() -> None:
    clock = Clock()
    before = _working(4, clock)
    for _ in range(4):
        before.failed(2, "no licence")
    before.failed(1, "hangs", ends_process=True)
    after = Quarantine(4, clock=clock, remembered=before.remember())
    assert (after.live, after.reason, after.has_worked) == ([0, 1, 3], before.reason, True)
    after.failed(1, "hangs", ends_process=True)
    assert after.live == [0, 3]
