"""Time in which this process ran: clocks here jump where it was suspended."""

from learner.threads.awake_clock import AwakeClock, wait_awake


def test_what_is_late_was_suspended_and_counts_little() -> None:
    times = iter([100.0, 100.1, 100.6, 3700.0, 3700.1])
    clock = AwakeClock(times.__next__)
    assert clock.seconds == 0.0
    assert [round(clock.tick(), 3) for _ in range(4)] == [0.1, 0.6, 1.6, 1.7]
    assert round(clock.seconds, 3) == 1.7


def test_who_waits_is_given_the_rest_of_its_time_after_that() -> None:
    times = iter([0.0, 0.0, 3600.0, 3600.9, 3601.5, 3602.0])
    timeouts: list[float] = []

    def wait(seconds: float) -> bool:
        timeouts.append(round(seconds, 3))
        return False

    assert not wait_awake(wait, 2.0, times.__next__)
    assert timeouts == [0.2, 0.2, 0.1, 0.0]
    assert list(times) == [3602.0]


def test_a_wait_ends_with_its_success() -> None:
    answers = iter([False, True, False])
    assert wait_awake(lambda seconds: next(answers), 60.0, lambda: 0.0)
    assert wait_awake(lambda seconds: True, 0.0)
    assert next(answers) is False
