"""Sound environments, and what people get wrong: each of the others breaks one rule only.

`ERRORS` and `NOTES` say which. On command lines they are named `example_envs:NAME`.
"""

import os
import random
import threading
import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space


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
        self.position = min(self.position + 0.05 * np.sum(action) * self.draw(), 1.0)
        return self.observation(), self.reward(), self.is_over(), False, self.info()

    def draw(self) -> float:
        return self.np_random.random()

    def observation(self) -> Any:
        return np.array([self.position, 1 - self.position], np.float32)

    def reward(self) -> Any:
        return -0.1

    def is_over(self) -> Any:
        return self.position >= 1

    def info(self) -> Any:
        return {}


class DictWalk(Walk):
    """Sound: observations that nest."""

    observation_space = Dict(
        {"place": Dict({"x": Box(0, 1, (), np.float64)}), "left": Discrete(2, start=-1)}
    )

    def observation(self) -> Any:
        return {"place": {"x": np.float64(self.position)}, "left": -1 if self.position < 0.5 else 0}


class DictWalkInCentimetres(DictWalk):
    """One array of a nested observation is beyond its bounds, and the next one is an array."""

    def observation(self) -> Any:
        return {"place": {"x": np.float64(100)}, "left": np.zeros(1, np.int64)}


class Drive(Walk):
    """Sound: a force rather than a choice."""

    action_space = Box(np.array([0.1, 0], np.float32), np.array([3, 5], np.float32))


class Throw(Walk):
    """Sound: forces without bounds."""

    action_space = Box(-np.inf, np.inf, (2,), np.float64)

    def step(self, action: Any) -> Any:
        return super().step(np.abs(action))


def _made(name: str, **own: Any) -> type[Walk]:
    return type(name, (Walk,), own)


# Sound: several choices at once, not all from 0; and several choices of two.
Dials = _made("Dials", action_space=MultiDiscrete([[3, 2], [1, 4]], start=[[1, 0], [1, 0]]))
Switches = _made("Switches", action_space=MultiBinary(3))


class OddInfo(Walk):
    """Sound: `info` may hold anything, of any kind at each step."""

    def info(self) -> Any:
        value: Any = [1] if self.num_steps % 2 else [[1], [2, 3]]
        odd = {0: 1, ("a", 1): 2, "ragged": value, "mixed": 1.0 if self.num_steps % 3 else "no"}
        return {**odd, "huge": 10**30, "nested": {"score": 0.5, 7: 1}, "won": self.is_over()}


class Stuck(Walk):
    """A step that never returns."""

    def step(self, action: Any) -> Any:
        time.sleep(1e6)


class Chatty(Walk):
    """Sound, but prints, past Python too, and leaves a thread behind, which never ends."""

    def __init__(self) -> None:
        super().__init__()
        threading.Thread(target=self.chat).start()  # no daemon

    def chat(self) -> None:
        while True:
            os.write(1, b"by C\n")
            time.sleep(1e-4)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        print("by Python")
        os.write(1, b"by C\n")
        return super().reset(seed=seed)


class MisnamedMask(Walk):
    """A mask that nothing reads."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        observation, _ = super().reset(seed=seed)
        return observation, {"mask": np.array([1, 0, 1], np.int8)}


def _interrupt(self: Walk) -> Any:
    raise KeyboardInterrupt


# A mask as another library reads it.
MaskMethod = _made("MaskMethod", action_masks=lambda self: np.ones(3, bool))
# A logarithm of 0.
NanReward = _made("NanReward", reward=lambda self: -np.inf if self.num_steps == 2 else 0.0)
# Counts in units of cents.
LargeReward = _made("LargeReward", reward=lambda self: 5e6)
# Python's floats become float64.
WrongDtype = _made("WrongDtype", observation=lambda self: np.array([self.position, 0.5]))
# Words in place of their embedding.
NoNumbers = _made("NoNumbers", observation=lambda self: np.array(["left", "right"]))
# A list of what is near that happens to be empty.
NothingThere = _made("NothingThere", observation=lambda self: np.zeros(0, np.float32))
# Bounds that nobody looked at.
OutsideItsSpace = _made(
    "OutsideItsSpace", observation=lambda self: np.array([10 * self.position, 0], np.float32)
)
# Two choices in a tuple.
NestedChoices = _made("NestedChoices", action_space=Tuple((Discrete(2), Discrete(2))))
InterruptsItself = _made("InterruptsItself", reward=_interrupt)
InterruptsItsEnd = _made("InterruptsItsEnd", close=_interrupt)
# Walks on the spot.
Endless = _made("Endless", is_over=lambda self: False)


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


class RaisesInReset(Walk):
    """Cannot start a second episode."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if self.num_steps > 2:
            raise OSError("no such level")
        return super().reset(seed=seed)


class RaisesInClose(Walk):
    """Closes a window that it never opened."""

    def close(self) -> None:
        raise AttributeError("no window")


class BothFlags(Walk):
    """Says that an episode ended in both ways."""

    def step(self, action: Any) -> Any:
        observation, reward, is_over, _, info = super().step(action)
        return observation, reward, is_over, is_over, info


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


class SameStepVectors(Walk):
    """Its vector implementation starts the next episode with the step that ends the last."""


class SameStepVectors_vec(Walks):  # noqa: N801
    """Loses last observations."""

    def step(self, actions: Any) -> Any:
        self.was_over[:] = False
        _, reward, is_over, none, info = super().step(actions)
        self.position[is_over] = 0.05
        return self.observation(), reward * 0, is_over, none, info


Walk_vec = Walks


class OldReset(Walk):
    """As gym before 0.26: reset returns no info. Two numbers could be taken for both."""

    def reset(self, **arguments: Any) -> Any:
        return super().reset(**arguments)[0]


class OldStep(Walk):
    """As gym before 0.26: step returns one flag."""

    def step(self, action: Any) -> Any:
        observation, reward, is_over, _, info = super().step(action)
        return observation, reward, is_over, info


ERRORS = {
    OldReset: "raises",
    OldStep: "raises",
    NanReward: "values",
    LargeReward: "values",
    RaisesInReset: "raises",
    WrongDtype: "observation",
    NoNumbers: "observation",
    NothingThere: "observation",
    OutsideItsSpace: "observation",
    DictWalkInCentimetres: "observation",
    GlobalRandom: "seeding",
    SameStepVectors: "seeding",
    SeededGlobalRandom: "isolation",
    NestedChoices: "spaces",
    RaisesInClose: "close-raises",
    InterruptsItself: "raises",
    InterruptsItsEnd: "close-raises",
    make_swallowed_truncation: "time-limit",
}

NOTES = {
    BothFlags: "both-flags",
    Endless: "endless",
    MisnamedMask: "mask-name",
    MaskMethod: "mask-name",
}
