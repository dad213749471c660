"""Recall: a signal is shown once, at the start, and must be repeated at the end."""

import gymnasium
import numpy as np


class Recall(gymnasium.Env):
    """`delay` steps lie between the signal and the question; the right answer gives 1.

    Observations are `[5] float32`: the signal as one-hot of four on the first step, and in the last
    place a 1 when the question is asked. Actions before the question do nothing.
    """

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (5,), np.float32)
    action_space = gymnasium.spaces.Discrete(4)

    def __init__(self, delay=4):
        self.delay = delay

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.signal = int(self.np_random.integers(4))
        self.left = self.delay
        return _one_hot(self.signal), {}

    def step(self, action):
        is_over = self.left == 0
        reward = float(is_over and action == self.signal)
        self.left -= 1
        return _one_hot(4) * (self.left == 0), reward, is_over, False, {}


def _one_hot(place):
    return np.eye(5, dtype=np.float32)[place]


def make(delay=4):
    return Recall(delay)
