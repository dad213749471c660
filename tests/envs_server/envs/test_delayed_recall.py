"""Delayed recall, played by hand."""

import numpy as np

from envs_server.envs.delayed_recall import DelayedRecall, make


def play(env: DelayedRecall, answer: int | None = None) -> tuple[np.ndarray, list[float]]:
    """Observations and rewards of an episode; `answer` is given on all rows, by default the cue."""
    rows = [env.reset()[0]]
    rewards = []
    terminated = False
    while not terminated:
        action = int(rows[0].argmax()) if answer is None else answer
        observation, reward, terminated, truncated, _ = env.step(action)
        assert env.observation_space.contains(observation) and not truncated
        rows.append(observation)
        rewards.append(reward)
    return np.array(rows), rewards


def test_the_symbol_is_shown_once_and_asked_for_after_the_delay() -> None:
    env = make(symbols=3, delay=2)
    env.reset(seed=4)
    rows, rewards = play(env)
    expected = np.zeros((5, 4))
    expected[0, rows[0].argmax()] = expected[3, 3] = 1
    assert rows[0, 3] == 0
    np.testing.assert_array_equal(rows, expected)
    assert rewards == [0, 0, 0, 1]


def test_memory_earns_1_and_a_policy_without_it_one_in_symbols() -> None:
    env = make(symbols=4, delay=3)
    env.reset(seed=0)
    assert [sum(play(env)[1]) for _ in range(50)] == [1] * 50
    fixed = [[sum(play(env, answer)[1]) for _ in range(500)] for answer in range(4)]
    # Of 500 draws with probability 1/4 the mean has a deviation of 0.019.
    np.testing.assert_allclose(np.mean(fixed, axis=1), 0.25, atol=0.08)
