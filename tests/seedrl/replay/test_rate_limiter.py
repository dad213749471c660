import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedrl.replay.rate_limiter import RatioLimiter


def _limiter(
    replay_ratio: float = 1.0, batch_steps: int = 10, tolerance_updates: float = 2.0
) -> RatioLimiter:
    limiter = RatioLimiter(
        replay_ratio=replay_ratio,
        batch_steps=batch_steps,
        tolerance_updates=tolerance_updates,
        min_sequences=3,
    )
    return limiter.holds([3])


def test_an_update_is_due_when_its_steps_are_owed() -> None:
    limiter = _limiter(replay_ratio=0.5, batch_steps=10)
    limiter = limiter.acted(19)
    assert not limiter.may_learn()
    limiter = limiter.acted(1)
    assert limiter.may_learn()
    limiter = limiter.took().applied()
    assert not limiter.may_learn()
    assert limiter.measured_ratio == 0.5


def test_acting_is_free_and_owes_nothing_until_replay_can_be_sampled() -> None:
    limiter = _limiter(tolerance_updates=1.0).holds([2])
    limiter = limiter.acted(1000)
    assert limiter.may_act()
    assert not limiter.may_learn()
    limiter = limiter.holds([3])
    assert limiter.owed_steps == 0.0
    assert limiter.measured_ratio == 0.0
    assert not limiter.may_learn()


def test_steps_before_learning_count_in_the_reported_ratio_and_owe_nothing() -> None:
    limiter = _limiter(replay_ratio=0.5, batch_steps=10).holds([2]).acted(60).holds([3]).acted(20)
    limiter = limiter.took().applied()
    assert (limiter.owed_steps, limiter.measured_ratio) == (0.0, 10 / 80)
    assert _limiter(replay_ratio=0.5, batch_steps=10).restored(limiter.counts()) == limiter


def test_shards_that_hold_nothing_keep_the_others_from_nothing_and_train_nothing() -> None:
    limiter = _limiter(replay_ratio=1.0, batch_steps=12, tolerance_updates=2.0)
    # Three in each of four shards, or as many in fewer.
    assert not limiter.holds([5, 0, 6, 0]).is_ready
    half = limiter.holds([6, 0, 6, 0])
    assert half.is_ready and half.update_steps == 6
    half = half.acted(5)
    assert half.may_act() and not half.may_learn()
    half = half.acted(7)
    assert not half.may_act() and half.may_learn()
    half = half.took().applied()
    assert half.owed_steps == 6 and half.measured_ratio == 0.5
    whole = half.holds([6, 1, 6, 1])
    assert whole.update_steps == 12 and whole.may_act() and not whole.may_learn()


@pytest.mark.parametrize("ratio", [0.1, 1 / 3, 0.7, 1.0, 2.5, 8.0])
def test_no_reachable_state_stops_both_sides_and_all_keep_the_invariant(ratio: float) -> None:
    for settings in itertools.product((1, 2, 3, 7), (1.0, 1.3, 2.0, 3.0), (1, 2, 5)):
        batch_steps, tolerance, steps_per_act = settings
        reached, pending = {(0, 0)}, [(0, 0)]
        while pending:
            env_steps, trained_steps = pending.pop()
            limiter = _limiter(ratio, batch_steps, tolerance)
            limiter = limiter._replace(env_steps=env_steps, taken_steps=trained_steps)
            may_act, may_learn = limiter.may_act(), limiter.may_learn()
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
        if is_acting and limiter.may_act():
            # Whoever acts is behind by less than an update; the act itself may add to that.
            assert ratio * env_steps - updates * batch_steps < batch_steps
            limiter = limiter.acted(steps)
            env_steps += steps
        elif not is_acting and limiter.may_learn():
            limiter = limiter.took().applied()
            updates += 1
        # Learning catches up whenever it is let: then both are within one update.
        while not limiter.may_act():
            assert limiter.may_learn()
            limiter = limiter.took().applied()
            updates += 1
        assert 0 <= ratio * env_steps - updates * batch_steps < batch_steps
        if env_steps:
            assert limiter.measured_ratio == updates * batch_steps / env_steps
            assert abs(limiter.measured_ratio - ratio) * env_steps < batch_steps + 1e-6


def test_counts_survive_a_restart() -> None:
    limiter = _limiter(replay_ratio=0.5, batch_steps=10)
    limiter = limiter.acted(33).took().applied().took()
    counts = {"env_steps": 33, "taken_steps": 20, "applied_steps": 10, "replay_ratio": 0.5}
    counts["early_steps"] = 0
    assert limiter.counts() == counts
    resumed = _limiter(replay_ratio=0.5, batch_steps=10).restored(counts)
    assert resumed == limiter
    assert resumed.owed_steps == -3.5
    # While a replay that starts empty fills up, nothing is owed for that.
    refilled = resumed.holds([0]).acted(1000)
    assert refilled.owed_steps == -3.5 and not refilled.may_learn()


def test_the_debt_of_another_ratio_is_dropped() -> None:
    counts = _limiter(replay_ratio=0.5).acted(1_000_000).took().counts()
    resumed = _limiter(replay_ratio=4.0).restored(counts)
    assert resumed.owed_steps == 0.0
    assert not resumed.may_learn()


def test_an_update_that_is_skipped_pays_and_is_not_reported_as_trained() -> None:
    limiter = _limiter(replay_ratio=1.0, batch_steps=10, tolerance_updates=2.0).acted(20)
    assert not limiter.may_act()
    limiter = limiter.took()
    assert limiter.may_act()  # else it would wait for ever for updates that are all skipped
    assert limiter.metrics() == {"replay_ratio": 0.0, "replay_ratio_target": 1.0}
    limiter = limiter.took().applied()
    assert not limiter.may_learn()
    assert limiter.metrics() == {"replay_ratio": 0.5, "replay_ratio_target": 1.0}
