"""Environments stepped one after another, and those of them that fail."""

import os
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from envs_server.build import Recipe, build
from envs_server.failures import BuildError, EnvironmentFailedError, Failures, Progress
from envs_server.groups import EnvGroup, VectorEnvironment
from envs_server.stop import HangLimit
from seedrl.types import StepType

FIRST, MID, LAST = StepType.FIRST, StepType.MID, StepType.LAST
_STAY = np.zeros(3, np.int64)


class Wide(gymnasium.Env[Any, Any]):
    """Returns wider numbers than its space declares; the third one is `last`."""

    action_space = spaces.Discrete(2)

    def __init__(self, last: Any, dtype: str, nested: bool = False) -> None:
        box = spaces.Box(-1e38 if dtype == "float32" else -(2**31), 2**30, (2,), dtype)
        self.observation_space = spaces.Dict({"a": spaces.Tuple((box,))}) if nested else box
        self._numbers = iter([0, 1, last])
        self._nested = nested

    def _observe(self) -> Any:
        number = next(self._numbers)
        wide = np.array([0, number], np.float64 if isinstance(number, float) else np.int64)
        return {"a": (wide,)} if self._nested else wide

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        return self._observe(), 0.0, False, False, {}


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(("last", "dtype"), [(1e300, "float32"), (2**40 + 1, "int32")])
def test_wider_numbers_are_cast_and_refused_where_they_do_not_fit(
    last: Any, dtype: str, nested: bool
) -> None:
    recipe = Recipe("wide", {"last": last, "dtype": dtype, "nested": nested}, (), Wide)
    environment = build(recipe, "sync", 2)
    environment.reset([1, 2])
    observation = environment.step(np.zeros(2, np.int64)).timestep.observation
    leaf = observation["a"][0] if nested else observation
    assert leaf.dtype == dtype and leaf.tolist() == [[0, 1], [0, 1]]
    with pytest.raises(EnvironmentFailedError, match=dtype):
        environment.step(np.zeros(2, np.int64))


class Fleet:
    """Three environments with episodes of four steps; `does` is called in each method of each."""

    def __init__(self, does: Any = lambda where, number: None) -> None:
        self.does = does
        self.num_built = 0
        self.closed: list[int] = []

    def make(self) -> "Fragile":
        number = self.num_built
        self.num_built += 1
        self.does("build", number)
        return Fragile(self, number)

    def build(self, failures: Failures | None) -> VectorEnvironment:
        return build(Recipe("f:make", {}, (), self.make), "sync", 3, failures=failures)


class Fragile(gymnasium.Env[np.ndarray, np.int64]):
    """Shows its number, the seed of its first episode, and its step."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float64)
    action_space = spaces.Discrete(2)

    def __init__(self, fleet: Fleet, number: int) -> None:
        self._fleet, self.number, self._first_seed = fleet, number, -1

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._first_seed = self._first_seed if seed is None else seed
        self._step = 0
        self._fleet.does("reset", self.number)
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        self._step += 1
        reward = self._fleet.does("step", self.number)
        return self._observe(), 1.0 if reward is None else reward, self._step == 4, False, {}

    def _observe(self) -> np.ndarray:
        return np.array([self.number, self._first_seed, self._step], np.float64)

    def close(self) -> None:
        self._fleet.closed.append(self.number)


class UnshowableError(Exception):
    """Raises once more when it is printed."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


def _failures() -> Failures:
    return Failures(3, 3)


def _once(where: str, number: int, error: BaseException | float) -> Any:
    """What fails the first time that environment is there."""
    left = [error]

    def does(at: str, who: int) -> Any:
        if (at, who) == (where, number) and left:
            wrong = left.pop()
            if isinstance(wrong, BaseException):
                raise wrong
            return wrong
        return None

    return does


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("no licence"),
        KeyboardInterrupt(),
        SystemExit(0),
        GeneratorExit(),
        UnshowableError(),
        float("nan"),
        1e39,
    ],
)
def test_one_that_fails_in_a_step_costs_its_own_episode_and_no_other(error: Any) -> None:
    fleet = Fleet(_once("step", 1, error))
    group = EnvGroup(0, fleet.build(_failures()), [7, 8, 9])
    group.reset()
    step = group.advance(_STAY)
    # FIRST where MID was due: the learner cuts that row's stream there.
    assert step.step_type.tolist() == [MID, FIRST, MID]
    assert step.reward.tolist() == [1, 0, 1] and step.discount.tolist() == [1, 1, 1]
    number, seed, count = step.observation[1].tolist()
    # Another instance with another seed: no episode is played twice.
    assert (number, count) == (3, 0) and seed not in (7, 8, 9)
    assert step.observation[[0, 2]].tolist() == [[0, 7, 1], [2, 9, 1]]
    assert fleet.closed == [1]
    kinds = [group.advance(_STAY).step_type.tolist() for _ in range(5)]
    assert np.transpose(kinds).tolist() == [
        [MID, MID, LAST, FIRST, MID],
        [MID, MID, MID, LAST, FIRST],
        [MID, MID, LAST, FIRST, MID],
    ]


def test_a_reset_that_fails_cuts_nothing() -> None:
    """The episode before it has ended; issue: each failure rebuilt all environments."""
    resets: list[int] = []

    def does(where: str, number: int) -> None:
        if where == "reset":
            resets.append(number)
            if resets == [0, 1, 2, 0, 1]:
                raise RuntimeError("no free port")

    fleet = Fleet(does)
    group = EnvGroup(0, fleet.build(_failures()), [7, 8, 9])
    group.reset()
    kinds = [group.advance(_STAY).step_type.tolist() for _ in range(6)]
    assert np.transpose(kinds).tolist() == [[MID, MID, MID, LAST, FIRST, MID]] * 3
    assert resets == [0, 1, 2, 0, 1, 3, 2] and fleet.num_built == 4


def test_a_constructor_that_fails_once_after_a_failure_is_tried_again() -> None:
    """A licence server that is not there for a moment ended the run."""

    def does(where: str, number: int) -> None:
        if (where, number) in (("step", 1), ("build", 3), ("reset", 4)):
            raise RuntimeError("no licence")

    fleet = Fleet(does)
    group = EnvGroup(0, fleet.build(_failures()), [7, 8, 9])
    group.reset()
    assert group.advance(_STAY).step_type.tolist() == [MID, FIRST, MID]
    assert fleet.num_built == 6


def test_only_the_very_first_construction_is_wrong_usage() -> None:
    def does(where: str, number: int) -> None:
        if (where, number) == ("build", number_of_bad):
            raise RuntimeError("no licence")

    number_of_bad = 0
    with pytest.raises(BuildError):
        Fleet(does).build(_failures())
    number_of_bad = 2
    fleet = Fleet(does)
    assert fleet.build(_failures()).reset([1, 2, 3])[:, 0].tolist() == [0, 1, 3]
    # Environments have worked before this stream.
    number_of_bad = 0
    fleet = Fleet(does)
    failures = Failures(3, progress=Progress.STEPPED)
    assert fleet.build(failures).reset([1, 2, 3])[:, 0].tolist() == [1, 2, 3]


def test_an_environment_that_cannot_be_closed_hides_no_reason() -> None:
    class Unclosable(Fragile):
        def close(self) -> None:
            raise RuntimeError("still open")

    class Other(Unclosable):
        action_space = spaces.Discrete(3)

    kinds = iter([Unclosable, Other])
    recipe = Recipe("f:make", {}, (), lambda: next(kinds)(Fleet(), 0))
    with pytest.raises(BuildError, match="action_space"):
        build(recipe, "sync", 2)


@pytest.mark.filterwarnings("ignore:os.fork", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize("where", ["step", "reset", "build"])
def test_a_fork_that_returns_into_the_loop_ends_before_the_next_message(
    where: str, raises: bool
) -> None:
    """It went on as a second env server on the same sockets, and the run ended."""
    pids: list[int] = []

    def does(at: str, number: int) -> None:
        if (at, number) == (where, 2) and not pids:
            pids.append(os.fork())
            if raises and not pids[0]:
                raise SystemExit

    limit = HangLimit()
    with limit.limit(0):
        environment = Fleet(does).build(_failures())
    with limit.limit(0):
        environment.reset([7, 8, 9])
    with limit.limit(0):
        environment.step(_STAY)
    if not pids[0]:
        os._exit(9)  # the child is still here
    _, status = os.waitpid(pids[0], 0)
    assert os.waitstatus_to_exitcode(status) == 0
