import threading

import pytest

from learner.runtime.rate_limiter import RateLimiter
from seedrl.replay.rate_limiter import RatioLimiter, ratio_limiter
from tests.patience import SECONDS


def _limiter(
    replay_ratio: float = 1.0, batch_steps: int = 10, tolerance_updates: float = 2.0
) -> RateLimiter:
    limiter = ratio_limiter(
        replay_ratio=replay_ratio, batch_steps=batch_steps, tolerance_updates=tolerance_updates
    )
    shared = RateLimiter(limiter)
    assert shared.holds([1])
    return shared


def _now(limiter: RateLimiter) -> RatioLimiter:
    assert isinstance(limiter.now, RatioLimiter)
    return limiter.now


def test_every_event_reaches_the_limiter() -> None:
    limiter = _limiter(replay_ratio=0.5, batch_steps=10)
    counts = {"env_steps": 8, "early_steps": 0, "taken_steps": 4, "applied_steps": 3}
    limiter.restore({**counts, "replay_ratio": 0.5})
    limiter.acted(2)
    limiter.took()
    limiter.applied()
    expected = {"env_steps": 10, "early_steps": 0, "taken_steps": 14, "applied_steps": 13}
    expected |= {"replay_ratio": 0.5}
    assert limiter.now.counts() == expected
    assert not limiter.holds([0])


def test_two_threads_continue_at_the_configured_ratio() -> None:
    limiter = _limiter(replay_ratio=2.0, batch_steps=6, tolerance_updates=1.0)

    def act() -> None:
        for _ in range(600):
            assert limiter.wait_to_act(SECONDS)
            limiter.acted(1)
        limiter.close()

    def learn() -> None:
        while limiter.wait_to_learn(SECONDS):
            limiter.took()

    threads = [threading.Thread(target=target, daemon=True) for target in (act, learn)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive()
    assert _now(limiter).env_steps == 600
    assert 0 <= _now(limiter).owed_steps < 6 + 2


@pytest.mark.parametrize("wait", ["wait_to_act", "wait_to_learn"])
def test_closing_ends_a_wait(wait: str) -> None:
    limiter = _limiter()
    if wait == "wait_to_act":
        limiter.acted(1000)
    results: list[bool] = []
    thread = threading.Thread(
        target=lambda: results.append(getattr(limiter, wait)(SECONDS)), daemon=True
    )
    thread.start()
    limiter.close()
    thread.join(SECONDS)
    assert results == [False]
    assert getattr(limiter, wait)(SECONDS) is False
