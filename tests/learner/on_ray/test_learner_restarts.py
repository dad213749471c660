"""How often a learner is started again, with a clock of its own."""

from learner.on_ray.learner_restarts import LearnerRestarts, Verdict

OFTEN = Verdict(0.0, "after 6 restarts within an hour")
WAITS = Verdict(10.0)


def test_six_deaths_within_an_hour_are_forgiven_and_again_after_it() -> None:
    now = [0.0]
    restarts = LearnerRestarts(lambda: now[0])
    assert [restarts.ended(137) for _ in range(7)] == [Verdict(0.0)] * 6 + [OFTEN]
    now[0] = 3600.0
    assert restarts.ended(137) == Verdict(0.0)


def test_a_folder_that_is_taken_is_no_death_and_waited_for_a_quarter_of_an_hour() -> None:
    now = [0.0]
    restarts = LearnerRestarts(lambda: now[0])
    assert [restarts.ended(98) for _ in range(20)] == [WAITS] * 20
    now[0] = 899.0
    assert restarts.ended(98) == WAITS
    # It was free in between.
    assert restarts.ended(137) == Verdict(0.0)
    now[0] = 1798.0
    assert restarts.ended(98) == WAITS
    now[0] = 2698.0
    assert "15 minutes" in restarts.ended(98).refusal
    assert [restarts.ended(137) for _ in range(6)] == [Verdict(0.0)] * 5 + [OFTEN]
