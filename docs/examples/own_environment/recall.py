"""Recall: a signal is shown once, at the start, and must be repeated at the end."""

import gymnasium
import numpy as np


class Recall(gymnasium.Env):
    """`delay` steps lie between the signal and the question; the right answer gives 1.

    Observations are `[3] float32`: the signal as one-hot of two on the first step, and a 1 when the
    question is asked. Actions before the question do nothing.
    """

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, delay=4):
        self.delay = delay

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.signal = int(self.np_random.integers(2))
        self.left = self.delay
        observation = np.zeros(3, np.float32)
        observation[self.signal] = 1.0
        return observation, {}

    def step(self, action):
        is_over = self.left == 0
        reward = float(is_over and action == self.signal)
        self.left -= 1
        observation = np.array([0.0, 0.0, self.left == 0], np.float32)
        return observation, reward, is_over, False, {}


def make(delay=4):
    return Recall(delay)
