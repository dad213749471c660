import itertools
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from learner.threads.rate_limiter import RateLimiter, RateLimiterState
from seedrl.errors import ConfigError


def _limiter(
    replay_ratio: float = 1.0, batch_steps: int = 10, tolerance_updates: float = 2.0
) -> RateLimiter:
    limiter = RateLimiter(
        replay_ratio=replay_ratio, batch_steps=batch_steps, tolerance_updates=tolerance_updates
    )
    limiter.set_ready(True)
    return limiter


def _may_act(limiter: RateLimiter) -> bool:
    return limiter.wait_to_act(0.0)


def _may_learn(limiter: RateLimiter) -> bool:
    return limiter.wait_to_learn(0.0)


def test_an_update_is_due_when_its_steps_are_owed() -> None:
    limiter = _limiter(replay_ratio=0.5, batch_steps=10)
    limiter.acted(19)
    assert not _may_learn(limiter)
    limiter.acted(1)
    assert _may_learn(limiter)
    limiter.trained()
    assert not _may_learn(limiter)
    assert limiter.measured_ratio == 0.5


def test_acting_waits_when_it_is_ahead_by_the_tolerance() -> None:
    limiter = _limiter(replay_ratio=1.0, batch_steps=10, tolerance_updates=2.0)
    limiter.acted(19)
    assert _may_act(limiter)
    limiter.acted(1)
    assert not _may_act(limiter)
    limiter.trained()
    assert _may_act(limiter)


def test_acting_is_free_and_owes_nothing_until_replay_can_be_sampled() -> None:
    limiter = RateLimiter(replay_ratio=1.0, batch_steps=10, tolerance_updates=1.0)
    limiter.acted(1000)
    assert _may_act(limiter)
    assert not _may_learn(limiter)
    limiter.set_ready(True)
    assert limiter.owed_steps == 0.0
    assert limiter.measured_ratio == 0.0
    assert not _may_learn(limiter)


def test_a_gap_in_readiness_is_not_owed() -> None:
    limiter = _limiter()
    limiter.acted(15)
    limiter.set_ready(False)
    assert not _may_learn(limiter)
    limiter.acted(500)
    limiter.set_ready(True)
    assert limiter.owed_steps == 15.0


def test_infinite_tolerance_never_makes_acting_wait() -> None:
    limiter = _limiter(tolerance_updates=float("inf"))
    limiter.acted(10**9)
    assert _may_act(limiter)
    assert _may_learn(limiter)


@pytest.mark.parametrize(
    ("ratio", "tolerance", "message"),
    [
        (0.0, 2.0, r"learning\.replay_ratio to be a positive number, got 0\.0"),
        (-1.0, 2.0, r"learning\.replay_ratio"),
        (float("nan"), 2.0, r"learning\.replay_ratio"),
        (float("inf"), 2.0, r"learning\.replay_ratio"),
        (1.0, 0.99, r"learning\.tolerance_updates of at least 1, got 0\.99"),
        (1.0, float("nan"), r"learning\.tolerance_updates"),
    ],
)
def test_settings_that_could_deadlock_are_refused(
    ratio: float, tolerance: float, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        RateLimiter(replay_ratio=ratio, batch_steps=10, tolerance_updates=tolerance)


@pytest.mark.parametrize("ratio", [0.1, 1 / 3, 0.7, 1.0, 2.5, 8.0])
def test_no_reachable_state_stops_both_sides_and_all_keep_the_invariant(ratio: float) -> None:
    for settings in itertools.product((1, 2, 3, 7), (1.0, 1.3, 2.0, 3.0), (1, 2, 5)):
        batch_steps, tolerance, steps_per_act = settings
        reached, pending = {(0, 0)}, [(0, 0)]
        while pending:
            env_steps, trained_steps = pending.pop()
            limiter = _limiter(ratio, batch_steps, tolerance)
            limiter.restore(RateLimiterState(env_steps, trained_steps, ratio))
            may_act, may_learn = _may_act(limiter), _may_learn(limiter)
            assert may_act or may_learn, (settings, env_steps, trained_steps)
            owed = ratio * env_steps - trained_steps
            # Rounding may make a bound that is just met look passed.
            assert -1e-9 < owed < tolerance * batch_steps + ratio * steps_per_act + 1e-9
            following = []
            if may_act and env_steps < 20:
                following.append((env_steps + steps_per_act, trained_steps))
            if may_learn:
                following.append((env_steps, trained_steps + batch_steps))
            pending += [state for state in following if state not in reached]
            reached.update(following)
        assert max(state[0] for state in reached) >= 20


@given(
    ratio=st.floats(0.01, 16.0),
    batch_steps=st.integers(1, 500),
    turns=st.lists(st.tuples(st.booleans(), st.integers(1, 40)), max_size=200),
)
def test_any_interleaving_keeps_the_ratio_within_one_update(
    ratio: float, batch_steps: int, turns: list[tuple[bool, int]]
) -> None:
    limiter = _limiter(ratio, batch_steps, tolerance_updates=1.0)
    env_steps = updates = 0
    for is_acting, steps in turns:
        if is_acting and _may_act(limiter):
            # Whoever acts is behind by less than an update; the act itself may add to that.
            assert ratio * env_steps - updates * batch_steps < batch_steps
            limiter.acted(steps)
            env_steps += steps
        elif not is_acting and _may_learn(limiter):
            limiter.trained()
            updates += 1
        # Learning catches up whenever it is let: then both are within one update.
        while not _may_act(limiter):
            assert _may_learn(limiter)
            limiter.trained()
            updates += 1
        assert 0 <= ratio * env_steps - updates * batch_steps < batch_steps
        if env_steps:
            assert limiter.measured_ratio == updates * batch_steps / env_steps
            assert abs(limiter.measured_ratio - ratio) * env_steps < batch_steps + 1e-6


def test_counts_survive_a_restart() -> None:
    limiter = _limiter(replay_ratio=0.5, batch_steps=10)
    limiter.acted(33)
    limiter.trained()
    resumed = _limiter(replay_ratio=0.5, batch_steps=10)
    resumed.restore(limiter.state())
    assert resumed.state() == limiter.state() == RateLimiterState(33, 10, 0.5)
    assert resumed.owed_steps == 6.5


def test_the_debt_of_another_ratio_is_dropped() -> None:
    resumed = _limiter(replay_ratio=4.0)
    resumed.restore(RateLimiterState(1_000_000, 500_000, 0.5))
    assert resumed.owed_steps == 0.0
    assert not _may_learn(resumed)


def test_two_threads_go_on_at_the_configured_ratio() -> None:
    limiter = _limiter(replay_ratio=2.0, batch_steps=6, tolerance_updates=1.0)

    def act() -> None:
        for _ in range(600):
            assert limiter.wait_to_act(30.0)
            limiter.acted(1)
        limiter.close()

    def learn() -> None:
        while limiter.wait_to_learn(30.0):
            limiter.trained()

    threads = [threading.Thread(target=target, daemon=True) for target in (act, learn)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
        assert not thread.is_alive()
    assert limiter.state().env_steps == 600
    assert 0 <= limiter.owed_steps < 6 + 2


@pytest.mark.parametrize("wait", ["wait_to_act", "wait_to_learn"])
def test_closing_ends_a_wait(wait: str) -> None:
    limiter = _limiter()
    if wait == "wait_to_act":
        limiter.acted(1000)
    results: list[bool] = []
    thread = threading.Thread(
        target=lambda: results.append(getattr(limiter, wait)(60.0)), daemon=True
    )
    thread.start()
    limiter.close()
    thread.join(30.0)
    assert results == [False]
    assert getattr(limiter, wait)(60.0) is False
