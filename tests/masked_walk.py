"""A walk on which eight of ten actions are forbidden at every place, and which counts them.

Of the two legal actions of a place one leads a place on, for a reward of 1, and the other leads
back to the first place. A forbidden action stays where it is; with `is_strict` it fails.
"""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

PLACES, ACTIONS, STEPS = 12, 10, 24
_RANDOM = np.random.default_rng(37)
# `[PLACES, 2]`: at each place the action that leads on, and the one that leads back.
LEGAL = np.array([_RANDOM.choice(ACTIONS, 2, replace=False) for _ in range(PLACES)])
MASKS = np.zeros((PLACES, ACTIONS), np.int8)
MASKS[np.arange(PLACES)[:, None], LEGAL] = 1


class Walk(gymnasium.Env[Any, Any]):
    """See the module; `info` counts the `forbidden` actions of an episode of 24 steps."""

    observation_space = gymnasium.spaces.Discrete(PLACES)
    action_space = gymnasium.spaces.Discrete(ACTIONS)

    def __init__(self, mask: str, is_strict: bool, counts: str) -> None:
        self._mask, self._is_strict, self._counts = mask, is_strict, counts
        self._place = self._steps = self._forbidden = 0
        if mask == "observation":
            box = gymnasium.spaces.MultiBinary(ACTIONS)
            self.observation_space = gymnasium.spaces.Dict(  # type: ignore[assignment]
                {"place": self.observation_space, "action_mask": box}
            )

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        """Back to the first place."""
        super().reset(seed=seed)
        self._place = int(self.np_random.integers(PLACES))
        self._steps = self._forbidden = 0
        return self._seen()

    def step(self, action: Any) -> Any:
        """Takes any action; see the module for what it does."""
        self._steps += 1
        on, back = LEGAL[self._place]
        reward = float(action == on)
        if action == on:
            self._place = (self._place + 1) % PLACES
        elif action == back:
            self._place = 0
        else:
            self._forbidden += 1
            assert not self._is_strict, f"action {action} is forbidden at {self._place}"
        is_over = self._steps == STEPS
        if is_over and self._counts:
            with Path(self._counts).open("a") as file:
                file.write(f"{self._steps} {self._forbidden}\n")
        observation, info = self._seen()
        return observation, reward, False, is_over, info

    def _seen(self) -> Any:
        info: dict[str, Any] = {"forbidden": self._forbidden}
        mask = MASKS[self._place]
        if self._mask == "info":
            info["action_mask"] = mask
        observation: Any = self._place
        if self._mask == "observation":
            observation = {"place": self._place, "action_mask": mask}
        return observation, info


def make(mask: str = "info", is_strict: bool = False, counts: str = "") -> Walk:
    """One walk. `mask`: "info", "observation" or "none"; `counts`: a file, a line an episode."""
    return Walk(mask, is_strict, counts)


class Counted(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Counts what the masks of its environment's `info` forbid; a line of `counts` an episode."""

    def __init__(self, env: gymnasium.Env[Any, Any], counts: str) -> None:
        super().__init__(env)
        self._counts, self._mask = counts, np.zeros(0)
        self._steps = self._forbidden = 0

    def reset(self, **arguments: Any) -> Any:
        """See gymnasium."""
        observation, info = self.env.reset(**arguments)
        self._mask, self._steps, self._forbidden = info["action_mask"], 0, 0
        return observation, info

    def step(self, action: Any) -> Any:
        """See gymnasium."""
        self._steps, self._forbidden = self._steps + 1, self._forbidden + (not self._mask[action])
        result = self.env.step(action)
        self._mask = result[-1]["action_mask"]
        if result[2] or result[3]:
            with Path(self._counts).open("a") as file:
                file.write(f"{self._steps} {self._forbidden}\n")
        return result


def taxi(counts: str) -> gymnasium.Env[Any, Any]:
    """Gymnasium's Taxi with its own masks, in `info`, in episodes of 50 steps at most."""
    return Counted(gymnasium.make("Taxi-v4", max_episode_steps=50), counts)


class Apart(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Taxi's position, and its passenger's place and destination, in a dict of tuples."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        discrete = gymnasium.spaces.Discrete
        self.observation_space = gymnasium.spaces.Dict(
            taxi=gymnasium.spaces.Tuple((discrete(5), discrete(5))),
            passenger=gymnasium.spaces.Tuple((discrete(5), discrete(4))),
        )

    def observation(self, observation: Any) -> Any:
        """See gymnasium."""
        row, column, place, destination = self.unwrapped.decode(observation)  # type: ignore[attr-defined]
        return {"taxi": (row, column), "passenger": (place, destination)}


def taxi_apart(counts: str) -> gymnasium.Env[Any, Any]:
    """`taxi` with a dict of observations."""
    return Apart(taxi(counts))


def counted(counts: Path) -> tuple[int, int]:
    """Steps of ended episodes, and the forbidden actions among them."""
    steps, forbidden = np.loadtxt(counts, int, ndmin=2).sum(axis=0)
    return int(steps), int(forbidden)
