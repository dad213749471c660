"""The environment that everything else is checked with."""

import numpy as np
from seedrl_plugin.counting import make, reward_of


def test_the_reward_hashes_every_field_and_the_action() -> None:
    env = make()
    env.reset(seed=5 << 16 | 7)
    rewards = [env.step(action)[1] for action in (0, 4)]
    assert rewards == [reward_of(7, 5, 0, 1, 0), reward_of(7, 5, 0, 2, 4)]
    base = (7, 5, 3, 2, 1)
    others = {reward_of(*base[:i], base[i] + 1, *base[i + 1 :]) for i in range(5)}
    assert len(others | {reward_of(*base)}) == 6
    grid = {reward_of(e, 0, p, s, a) for e in range(4) for p in range(4) for s in range(4)
            for a in range(4)}  # fmt: skip
    assert len(grid) >= 254  # of 256: 16 bits do collide now and then


def test_the_reward_of_arrays_is_the_same_and_exact_in_float32() -> None:
    environments = np.arange(50, dtype=np.uint32)
    actions = np.arange(50, dtype=np.int32) % 5
    rewards = reward_of(environments, 3, 2, 1, actions)
    assert rewards.tolist() == [reward_of(int(e), 3, 2, 1, int(e) % 5) for e in environments]
    assert (rewards.astype(np.float32) == rewards).all() and rewards.max() < 2**16
