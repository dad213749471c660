"""Tiny tasks, each of which one kind of mistake in an agent fails: `check.py` trains on them.

Each is a Markov decision process with a table: a few actions and states, and an observation for
each state. A continuous twin takes one number: the action's part of [-1, 1].

| name | what an agent must do |
|---|---|
| one_step | prefer the one action in four that pays 1 |
| zero_observation | the same, while every observation is 0 |
| two_steps | bring a value back by one step, and see which state it is in |
| delayed_reward | bring a reward back over 10 steps, to the only action that matters |
| sparse_reward | go 6 steps forward, though random actions get there in 1 of 10 episodes |
| action_mask | choose the smaller of the two legal actions of ten; only the mask tells which |
| truncation | bootstrap from a truncated episode: investing pays in the next one |
| memory | answer with a cue that was shown 4 steps earlier |
| small_rewards, large_rewards | two_steps, its rewards times 0.01 and times 100 |
| discrete_observation | tell 6 categories apart: `Discrete(6)` |
| one_hot_bytes | the same, as `Box(0, 1, (6,), uint8)` |
| float_picture | the same of 4 pictures, `Box(0, 1, (2, 36, 36), float32)` |

The best mean return is 1 times the factor of the rewards, but 0.5 of `truncation`.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete, Space

_END = -1  # in place of the next state: the episode terminates


class Task(NamedTuple):
    """A Markov decision process."""

    next_states: Sequence[Sequence[int]]  # of each state, by action
    rewards: Sequence[Sequence[float]]  # of each state, by action
    starts: Sequence[int]  # states that an episode starts in, equally likely
    observations: np.ndarray  # `[S, ...]`, of each state
    # None: of floats from -1 to 1, as many as an observation has.
    space: Space[Any] | None = None
    limit: int | None = None  # steps after which an episode is truncated
    masks: np.ndarray | None = None  # `[S, A] bool`, of each state: its legal actions
    continues: bool = False  # an episode starts in the state that the one before was truncated in


_RIGHT = (0, 1, 1, 0, 1, 0)  # actions that nothing simple tells from the number of a state


def _one_step(value: float = 1.0) -> Task:
    # Of two actions one in two agents would prefer the right one before it has learned anything.
    return Task([(_END,) * 4], [(0.0, 0.0, 0.0, 1.0)], [0], np.full((1, 1), value, np.float32))


def _two_steps(scale: float = 1.0) -> Task:
    # Action 1 leads to state 1, where action 0 pays. State 2 pays nothing.
    moves = [(2, 1), (_END, _END), (_END, _END)]
    rewards = [(0.0, 0.0), (scale, 0.0), (0.0, 0.0)]
    return Task(moves, rewards, [0], np.eye(3, dtype=np.float32))


def _delayed_reward(steps: int = 10) -> Task:
    # State 0, then 1 to `steps` on the branch that pays at its end, then those on the other.
    good, bad = range(1, steps + 1), range(steps + 1, 2 * steps + 1)
    moves, rewards = [(bad[0], bad[0], bad[0], good[0])], [(0.0,) * 4]
    seen = [(0.0, 0.0)]
    for branch, side in ((good, 1.0), (bad, -1.0)):
        for state in branch:
            is_last = state == branch[-1]
            following = _END if is_last else state + 1
            moves.append((following,) * 4)
            rewards.append((float(is_last and side > 0),) * 4)
            seen.append((side, (state - branch[0]) / steps))
    return Task(moves, rewards, [0], np.array(seen, np.float32))


def _sparse_reward() -> Task:
    # Which action goes forward differs from state to state: no agent does so all the way by chance.
    length = len(_RIGHT)
    moves, rewards = [], []
    for state, forward in enumerate(_RIGHT):
        is_last = state == length - 1
        ways = (max(state - 1, 0), _END if is_last else state + 1)
        moves.append(ways if forward else ways[::-1])
        rewards.append([float(is_last and action == forward) for action in (0, 1)])
    return Task(moves, rewards, [0], np.eye(length, dtype=np.float32), limit=2 * length)


def _action_mask() -> Task:
    number = 10
    pairs = list(itertools.combinations(range(number), 2))
    rewards = [[float(action == pair[0]) for action in range(number)] for pair in pairs]
    masks = np.array([[action in pair for action in range(number)] for pair in pairs])
    seen = np.ones((len(pairs), 1), np.float32)
    return Task([(_END,) * number] * len(pairs), rewards, range(len(pairs)), seen, masks=masks)


def _truncation() -> Task:
    # Poor: 0.3 for staying poor, or nothing, and be rich. Rich: 1, and be poor again. With episodes
    # of one step, only an agent that bootstraps at their end finds that becoming rich is better.
    rewards = [(0.3, 0.0), (1.0, 1.0)]
    seen = np.eye(2, dtype=np.float32)
    return Task([(0, 1), (0, 0)], rewards, [0], seen, limit=1, continues=True)


def _memory(delay: int = 3) -> Task:
    # A cue of 1 or -1, `delay` steps of nothing, and then the question.
    moves, rewards, seen = [], [], []
    for cue in (0, 1):
        first = cue * (delay + 2)
        moves += [(first + step + 1,) * 2 for step in range(delay + 1)] + [(_END, _END)]
        rewards += [(0.0, 0.0)] * (delay + 1) + [(float(cue == 0), float(cue == 1))]
        seen += [(2.0 * cue - 1, 0.0)] + [(0.0, 0.0)] * delay + [(0.0, 1.0)]
    return Task(moves, rewards, [0, delay + 2], np.array(seen, np.float32))


def _contexts(right: Sequence[int], observations: np.ndarray, space: Space[Any]) -> Task:
    # One step: the right action pays 1.
    rewards = [(float(action == 0), float(action == 1)) for action in right]
    return Task([(_END, _END)] * len(right), rewards, range(len(right)), observations, space)


def _discrete_observation() -> Task:
    number = len(_RIGHT)
    return _contexts(_RIGHT, np.arange(number), Discrete(number))


def _one_hot_bytes() -> Task:
    number = len(_RIGHT)
    return _contexts(_RIGHT, np.eye(number, dtype=np.uint8), Box(0, 1, (number,), np.uint8))


def _float_picture() -> Task:
    # A bright square in one of the corners, in the second channel.
    pictures = np.zeros((4, 2, 36, 36), np.float32)
    for number in range(4):
        row, column = 18 * (number // 2), 18 * (number % 2)
        pictures[number, 1, row : row + 18, column : column + 18] = 1
    return _contexts((0, 1, 1, 0), pictures, Box(0, 1, pictures.shape[1:], np.float32))


TASKS: dict[str, Callable[[], Task]] = {
    "one_step": _one_step,
    "zero_observation": lambda: _one_step(0.0),
    "two_steps": _two_steps,
    "delayed_reward": _delayed_reward,
    "sparse_reward": _sparse_reward,
    "action_mask": _action_mask,
    "truncation": _truncation,
    "memory": _memory,
    "small_rewards": lambda: _two_steps(0.01),
    "large_rewards": lambda: _two_steps(100.0),
    "discrete_observation": _discrete_observation,
    "one_hot_bytes": _one_hot_bytes,
    "float_picture": _float_picture,
}


class Probe(gymnasium.Env[Any, Any]):
    """The environment of one of `TASKS`."""

    def __init__(self, *, name: str, continuous: bool = False) -> None:
        if name not in TASKS:
            raise ValueError(f"name: expected one of {', '.join(TASKS)}, got {name!r}")
        self._task = TASKS[name]()
        self._continuous, self._actions = continuous, len(self._task.rewards[0])
        shape = self._task.observations.shape[1:]
        self.observation_space = self._task.space or Box(-1, 1, shape, np.float32)
        self.action_space = Box(-1, 1, (1,), np.float32) if continuous else Discrete(self._actions)
        self._state: int | None = None
        self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        if self._state is None or not self._task.continues:
            starts = self._task.starts
            self._state = starts[int(self.np_random.integers(len(starts)))]
        return self._shown(self._state)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self._state is not None, "reset it first"
        number = int(np.ravel(action)[0])
        if self._continuous:
            number = min(int((np.ravel(action)[0] + 1) / 2 * self._actions), self._actions - 1)
        reward = self._task.rewards[self._state][number]
        following = self._task.next_states[self._state][number]
        terminated = following == _END
        # The last observation of a terminated episode means nothing.
        self._state = self._state if terminated else following
        self._steps += 1
        truncated = not terminated and self._steps == self._task.limit
        seen, info = self._shown(self._state)
        return seen, reward, terminated, truncated, info

    def _shown(self, state: int) -> tuple[Any, dict[str, Any]]:
        masks = self._task.masks
        info = {} if masks is None or self._continuous else {"action_mask": masks[state].copy()}
        return self._task.observations[state].copy(), info


make = Probe
