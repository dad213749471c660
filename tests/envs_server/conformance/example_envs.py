"""Sound environments, and what people get wrong: each of the others breaks one rule only.

`ERRORS` and `NOTES` say which. On command lines they are named `example_envs:NAME`.
"""

import random
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from gymnasium.wrappers import TimeLimit


class Walk(gymnasium.Env[Any, Any]):
    """Sound: a walk to the right, with steps of random width, until position 1."""

    observation_space: Any = Box(0, 1, (2,), np.float32)
    action_space: Any = Discrete(3, start=1)

    def __init__(self) -> None:
        self.position, self.num_steps = 0.0, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.position, self.num_steps = 0.1 * self.draw(), 0
        return self.observation(), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        self.num_steps += 1
        self.position = min(self.position + 0.1 * int(action) * self.draw(), 1.0)
        return self.observation(), self.reward(), self.is_over(), False, {}

    def draw(self) -> float:
        return self.np_random.random()

    def observation(self) -> Any:
        return np.array([self.position, 1 - self.position], np.float32)

    def reward(self) -> Any:
        return -0.1

    def is_over(self) -> Any:
        return self.position >= 1


class DictWalk(Walk):
    """Sound: observations that nest."""

    observation_space = Dict(
        {"place": Dict({"x": Box(0, 1, (), np.float64)}), "left": Discrete(2, start=-1)}
    )

    def observation(self) -> Any:
        return {"place": {"x": np.float64(self.position)}, "left": -1 if self.position < 0.5 else 0}


class Drive(Walk):
    """Sound: a force rather than a choice."""

    action_space = Box(np.array([-1, 0], np.float32), np.array([3, 5], np.float32))

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        self.num_steps += 1
        self.position = min(self.position + 0.1 * abs(float(action.sum())) * self.draw(), 1.0)
        return self.observation(), self.reward(), self.is_over(), False, {}


class Chatty(Walk):
    """Sound, but prints."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        print("a new episode")
        return super().reset(seed=seed)


class NanObservation(Walk):
    """A mean of nothing."""

    def observation(self) -> Any:
        mean = np.float32(np.nan) if self.num_steps == 3 else np.float32(self.position)
        return np.array([mean, 0], np.float32)


class NanReward(Walk):
    """A logarithm of 0."""

    def reward(self) -> Any:
        return float("-inf") if self.num_steps == 2 else 0.0


class WrongDtype(Walk):
    """Python's floats become float64."""

    def observation(self) -> Any:
        return np.array([self.position, 0.5])


class WrongShape(Walk):
    """Forgets a number at the start of an episode."""

    def observation(self) -> Any:
        return super().observation()[: 2 if self.num_steps else 1]


class OutsideItsSpace(Walk):
    """Bounds that nobody looked at."""

    def observation(self) -> Any:
        return np.array([10 * self.position, 0], np.float32)


class MissingKey(DictWalk):
    """Another structure at reset than later."""

    def observation(self) -> Any:
        observation = super().observation()
        if not self.num_steps:
            del observation["left"]
        return observation


class GlobalRandom(Walk):
    """Ignores its seed."""

    def draw(self) -> float:
        return random.random()


class SeededGlobalRandom(Walk):
    """Plays alike when alone, but not among others."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if seed is not None:
            random.seed(seed)
        return super().reset(seed=seed)

    def draw(self) -> float:
        return random.random()


class SharedBuffer(Walk):
    """Writes every observation into the same array."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer = np.zeros(2, np.float32)

    def observation(self) -> Any:
        self.buffer[:] = super().observation()
        return self.buffer


class StuckEnd(Walk):
    """Once over, always over."""

    def __init__(self) -> None:
        super().__init__()
        self.was_over = False

    def is_over(self) -> Any:
        self.was_over |= super().is_over()
        return self.was_over


class RaisesAfterReset(StuckEnd):
    """Refuses to go on after the first episode."""

    def step(self, action: Any) -> Any:
        if self.was_over:
            raise RuntimeError("the episode is over")
        return super().step(action)


class ArrayReward(Walk):
    """One reward, but in an array."""

    def reward(self) -> Any:
        return np.array([1.0])


class SeveralChoices(Walk):
    """Two choices at once."""

    action_space = MultiDiscrete([2, 2])


class Astronomical(Walk):
    """Counts in units of 64 bits."""

    observation_space = Box(0, 1e308, (2,), np.float64)

    def observation(self) -> Any:
        return np.array([self.position, 1e300 if self.num_steps == 2 else 0.0])


class LongNumbers(Walk):
    """Names itself by a number of 41 bits."""

    observation_space = Box(0, 2**60, (1,), np.int64)

    def observation(self) -> Any:
        return np.array([2**40 + int(100 * self.position)])


class OldInterface(Walk):
    """Four results, as in gym."""

    def step(self, action: Any) -> Any:
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, terminated, info


class ObservationOnly(Walk):
    """Reset without info, as in gym."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return super().reset(seed=seed)[0]


class SeedlessReset(Walk):
    """A seed of its own, as in gym."""

    def reset(self) -> Any:  # type: ignore[override]
        return super().reset()


class NumericFlags(Walk):
    """Numbers for flags."""

    def is_over(self) -> Any:
        return int(super().is_over())


class NoInfo(Walk):
    """Nothing where a dict should be."""

    def step(self, action: Any) -> Any:
        return (*super().step(action)[:4], None)


class RefusesAnAction(Walk):
    """Counts actions from 0 although its space starts at 1."""

    def step(self, action: Any) -> Any:
        return super().step([1, 2, 3][action])


class RaisesInReset(Walk):
    """Cannot start a second episode."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if self.num_steps:
            raise OSError("no such level")
        return super().reset(seed=seed)


class RaisesInClose(Walk):
    """Closes a window that it never opened."""

    def close(self) -> None:
        raise AttributeError("no window")


class Crowded(Walk):
    """Plays otherwise while there are many of it."""

    num_open = 0

    def __init__(self) -> None:
        super().__init__()
        Crowded.num_open += 1

    def close(self) -> None:
        Crowded.num_open -= 1

    def reward(self) -> Any:
        return 0.0 if Crowded.num_open > 2 else 1.0


class NotGymnasium:
    """Another library's environment."""


def make_limited_old_interface() -> Any:
    """Four results, and a wrapper that only says that there are too few."""
    return TimeLimit(OldInterface(), 50)


def make_swallowed_truncation() -> Any:
    """A time limit, and a wrapper that hands its end on as a termination."""

    class OneFlag(gymnasium.Wrapper[Any, Any, Any, Any]):
        def step(self, action: Any) -> Any:
            observation, reward, terminated, truncated, info = self.env.step(action)
            return observation, reward, terminated or truncated, False, info

    gymnasium.register("Walk-v0", entry_point=Walk, max_episode_steps=4)
    env = OneFlag(gymnasium.make("Walk-v0", disable_env_checker=True))
    del gymnasium.registry["Walk-v0"]
    return env


class Walks(VectorEnv[Any, Any, Any]):
    """Sound walks in one object, or unsound ones as the subclasses have it."""

    dtype: Any = np.float32

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        self.single_action_space = Walk.action_space
        self.single_observation_space = Box(0, 1, (2,), self.dtype)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.was_over = np.zeros(num_envs, np.bool_)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.position = 0.1 * self.np_random.random(self.num_envs)
        self.was_over[:] = False
        return self.observation(), {}

    def step(self, actions: Any) -> Any:
        width = 0.1 * actions * self.np_random.random(self.num_envs)
        start = 0.1 * self.np_random.random(self.num_envs)
        self.position = np.where(self.was_over, start, np.minimum(self.position + width, 1))
        reward = np.where(self.was_over, 0.0, -0.1)
        self.was_over = self.position >= 1
        none = np.zeros(self.num_envs, np.bool_)
        return self.observation(), reward, self.was_over, none, {}

    def observation(self) -> Any:
        return np.stack([self.position, 1 - self.position], 1).astype(self.dtype)


class OtherVectors(Walk):
    """Its vector implementation declares another dtype."""


class SameStepVectors(Walk):
    """Its vector implementation starts the next episode with the step that ends the last."""


class SpoilingVectors(Walk):
    """Its vector implementation counts the actions from 0, in the caller's array."""


class RewardedResetVectors(Walk):
    """Its vector implementation pays for the step that only starts an episode."""


class ListVectors(Walk):
    """Its vector implementation returns rewards in a list."""


class RaisingVectors(Walk):
    """Its vector implementation is unfinished."""


class _DoubleWalks(Walks):
    dtype = np.float64


class _SameStepWalks(Walks):
    def step(self, actions: Any) -> Any:
        self.was_over[:] = False
        _, reward, is_over, none, info = super().step(actions)
        self.position[is_over] = 0.05
        return self.observation(), reward * 0, is_over, none, info


class _SpoilingWalks(Walks):
    def step(self, actions: Any) -> Any:
        actions -= 1
        return super().step(actions + 1)


class _RewardedResetWalks(Walks):
    def step(self, actions: Any) -> Any:
        observation, reward, *rest = super().step(actions)
        return observation, reward * 0 - 0.1, *rest


class _ListWalks(Walks):
    def step(self, actions: Any) -> Any:
        observation, reward, *rest = super().step(actions)
        return observation, reward.tolist(), *rest


class _RaisingWalks(Walks):
    def step(self, actions: Any) -> Any:
        raise NotImplementedError


class BothFlags(Walk):
    """Says that an episode ended in both ways."""

    def step(self, action: Any) -> Any:
        observation, reward, is_over, _, info = super().step(action)
        return observation, reward, is_over, is_over, info


class Curriculum(Walk):
    """Walks faster the more episodes it has seen."""

    def __init__(self) -> None:
        super().__init__()
        self.num_episodes = 0

    def draw(self) -> float:
        return super().draw() * min(1 + self.num_episodes / 100, 1.5)

    def is_over(self) -> Any:
        self.num_episodes += super().is_over()
        return super().is_over()


class SafeCast(Walk):
    """Whole numbers where others would do."""

    def observation(self) -> Any:
        return np.array([self.position > 0.5, 0], np.uint8)


class ResetsItself(Walk):
    """Ends with the observation that the next episode starts with."""

    def observation(self) -> Any:
        position = 0 if not self.num_steps or self.is_over() else self.position
        return np.array([position, 0], np.float32)


class ManyActions(Walk):
    """More actions than the checker takes steps."""

    action_space = Discrete(1000)


class OldSeeding(Walk):
    """Can still be seeded as in gym."""

    def seed(self, seed: int) -> None:
        self.reset(seed=seed)


class Deterministic(Walk):
    """Nothing in it is random."""

    def draw(self) -> float:
        return 0.5


class FixedLength(Walk):
    """Ends after four steps, whatever is done."""

    def is_over(self) -> Any:
        return self.num_steps == 4


class Endless(Walk):
    """Walks on the spot."""

    def is_over(self) -> Any:
        return False


OtherVectors_vec = _DoubleWalks
SameStepVectors_vec = _SameStepWalks
SpoilingVectors_vec = _SpoilingWalks
RewardedResetVectors_vec = _RewardedResetWalks
ListVectors_vec = _ListWalks
RaisingVectors_vec = _RaisingWalks
Walk_vec = Walks

ERRORS = {
    NanObservation: "observation-finite",
    NanReward: "reward-finite",
    WrongDtype: "observation-dtype",
    WrongShape: "observation-shape",
    OutsideItsSpace: "observation-range",
    MissingKey: "observation-structure",
    GlobalRandom: "seeding",
    SeededGlobalRandom: "isolation",
    SharedBuffer: "observation-aliasing",
    StuckEnd: "reset-state",
    RaisesAfterReset: "reset-state",
    ArrayReward: "reward-scalar",
    SeveralChoices: "spaces",
    Astronomical: "observation-width",
    LongNumbers: "observation-width",
    OldInterface: "step-result",
    ObservationOnly: "reset-result",
    SeedlessReset: "reset-signature",
    NumericFlags: "flags",
    NoInfo: "info",
    RefusesAnAction: "step-raises",
    RaisesInReset: "reset-raises",
    RaisesInClose: "close-raises",
    NotGymnasium: "environment-class",
    make_limited_old_interface: "step-result",
    make_swallowed_truncation: "time-limit",
    OtherVectors: "back-end-spec",
    SameStepVectors: "autoreset",
    RewardedResetVectors: "autoreset",
    SpoilingVectors: "action-input",
    ListVectors: "wire",
    RaisingVectors: "back-end-raises",
    Crowded: "back-end-steps",
}

NOTES = {
    BothFlags: "both-flags",
    Curriculum: "reseeding",
    SafeCast: "observation-cast",
    ResetsItself: "last-observation",
    ManyActions: "untried-actions",
    OldSeeding: "gymnasium",
    Deterministic: "seed-ignored",
    FixedLength: "same-length",
    Endless: "endless",
}
