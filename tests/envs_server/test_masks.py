"""Action masks of `info`, or of a Dict: sent as bools next to the observation."""

import logging
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from envs_server.build import Recipe, build
from envs_server.check.environment import legal
from envs_server.failures import BuildError, EnvironmentFailedError, Failures
from envs_server.groups import EnvGroup, VectorEnvironment
from seedrl.specs import ArraySpec, DiscreteSpec
from seedrl.types import StepType, TimeStep
from seedrl.wire.framing import receive_from_env_server
from seedrl.wire.learner_payload import StepReader, pack_actions
from tests.masked_walk import ACTIONS, MASKS, make

_ALL = np.ones(3, np.int8)
_STAY = np.zeros(2, np.int64)


def _group(recipe: Recipe, num_envs: int, back_end: str = "sync") -> EnvGroup:
    return EnvGroup(0, build(recipe, back_end, num_envs), range(num_envs))


def _loop(
    build_one: Callable[[], Any], num_envs: int, failures: Failures | None = None
) -> VectorEnvironment:
    return build(Recipe("odd", {}, (), build_one), "sync", num_envs, failures=failures)


def _received(group: EnvGroup, message: Any, num_envs: int) -> TimeStep:
    payload = receive_from_env_server(message.message)
    assert isinstance(payload, memoryview)
    return StepReader(group.spec, num_envs).unpack(payload)


@pytest.mark.parametrize("mask", ["info", "observation"])
def test_every_row_has_the_mask_of_its_observation_over_episodes(mask: str) -> None:
    group = _group(Recipe("walk", {"mask": mask, "is_strict": True}, (), make), 2)
    seen = _received(group, group.first(), 2)
    name = "observation" if mask == "info" else "place"
    assert dict(group.spec.leaves())["observation.action_mask"] == ArraySpec((ACTIONS,), "bool")
    random, num_firsts = np.random.default_rng(0), 0
    for number in range(80):
        observation = seen.observation
        np.testing.assert_array_equal(observation["action_mask"], MASKS[observation[name]] == 1)
        actions = legal(random.integers(ACTIONS, size=2, dtype=np.int32), observation)
        message = group.step(memoryview(pack_actions(0, number, actions)))
        seen = _received(group, message, 2)
        num_firsts += np.count_nonzero(seen.step_type == StepType.FIRST)
    assert num_firsts == 6
    group.close()


def test_the_mask_joins_a_dict_that_has_none() -> None:
    space = spaces.Dict({"a": spaces.Discrete(4)})
    group = _group(Recipe("odd", {"space": space, "observation": {"a": 2}}, (), Odd), 2)
    seen = _received(group, group.first(), 2)
    assert seen.observation.keys() == {"a", "action_mask"}
    assert seen.observation["a"].tolist() == [2, 2]


class Odd(gymnasium.Env[Any, Any]):
    """Its masks are of `info`: `masks` in turn, None for none, and then ones for ever."""

    action_space: Any = spaces.Discrete(3)
    observation_space: Any = spaces.Discrete(4)

    def __init__(
        self,
        masks: tuple[Any, ...] = (),
        *,
        ends: bool = False,
        space: Any = None,
        observation: Any = 1,
        actions: Any = None,
    ) -> None:
        self._masks, self._ends, self._observation = iter(masks), ends, observation
        self.observation_space = space or self.observation_space
        self.action_space = actions or self.action_space

    def _info(self) -> Any:
        mask = next(self._masks, _ALL)
        return {} if mask is None else {"action_mask": mask}

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return self._observation, self._info()

    def step(self, action: Any) -> Any:
        return self._observation, 0.0, self._ends, False, self._info()


@pytest.mark.parametrize(
    "bad",
    [
        None,
        np.ones(4, np.int8),
        np.ones((3, 1), np.int8),
        np.array([0, 2, 1]),
        np.array([0.0, np.nan, 1.0]),
        np.zeros(3, np.int8),
        "all",
        {"a": 1},
    ],
)
def test_a_wrong_mask_is_the_failure_of_its_environment_alone(
    bad: Any, caplog: pytest.LogCaptureFixture
) -> None:
    masks = iter([(), (_ALL, _ALL, bad)])
    loop = _loop(lambda: Odd(next(masks, ())), 2, Failures(2, 1))
    loop.reset([1, 2])
    assert loop.spec.has_mask
    assert loop.step(_STAY).timestep.step_type.tolist() == [StepType.MID] * 2
    with caplog.at_level(logging.ERROR):
        step = loop.step(_STAY).timestep
    assert step.step_type.tolist() == [StepType.MID, StepType.FIRST]
    assert "environment 1 " in caplog.text and "action_mask" in caplog.text
    assert step.observation["action_mask"].all()


def test_a_later_reset_without_a_mask_is_the_failure_of_its_environment_alone() -> None:
    masks = iter([(_ALL, None), ()])
    loop = _loop(lambda: Odd(next(masks, ())), 2, Failures(2, 1))
    loop.reset([1, 2])
    assert loop.reset([3, 4])["action_mask"].all()


@pytest.mark.parametrize("where", ["reset", "last"])
def test_a_mask_that_the_first_reset_had_not_is_a_failure(where: str) -> None:
    masks = (None, _ALL) if where == "last" else (None, None, _ALL)
    loop = _loop(lambda: Odd(masks, ends=True), 1)
    loop.reset([1])
    assert not loop.spec.has_mask
    with pytest.raises(EnvironmentFailedError, match="action_mask"):
        for _ in range(2):
            loop.step(_STAY[:1])


def test_where_an_episode_has_terminated_no_action_need_be_legal() -> None:
    loop = _loop(lambda: Odd((_ALL, np.zeros(3, np.int8)), ends=True), 1)
    loop.reset([1])
    assert not loop.step(_STAY[:1]).timestep.observation["action_mask"].any()
    assert loop.step(_STAY[:1]).timestep.observation["action_mask"].all()


@pytest.mark.parametrize(
    "actions", [spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(4), spaces.Discrete(2)]
)
def test_a_mask_of_other_actions_is_refused_by_name(actions: Any) -> None:
    group = _group(Recipe("odd", {"actions": actions}, (), Odd), 1)
    with pytest.raises(EnvironmentFailedError, match="action_mask"):
        group.first()


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int64", "float32"])
def test_a_dict_declares_its_mask_in_bools_or_integers(dtype: str) -> None:
    mask = spaces.Box(0, 1, (3,), dtype)
    space = spaces.Dict({"a": spaces.Discrete(4), "action_mask": mask})
    observation = {"a": 2, "action_mask": np.array([0, 1, 1], dtype)}
    recipe = Recipe("odd", {"space": space, "observation": observation}, (), Odd)
    if dtype == "float32":
        with pytest.raises(BuildError, match=r"observation\.action_mask"):
            _group(recipe, 1)
        return
    group = _group(recipe, 1)
    seen = _received(group, group.first(), 1)
    assert seen.observation["action_mask"].tolist() == [[False, True, True]]
    assert group.spec.action == DiscreteSpec(3)


class Many(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """Two environments in one object; their masks are in `info`, or `key` of a Dict."""

    metadata = {"autoreset_mode": gymnasium.vector.AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(self, num_envs: int, mask: Any, has_key: bool) -> None:
        self.num_envs, self._mask, self._has_key = num_envs, np.array(mask, np.int8), has_key
        single = {"a": spaces.Discrete(4), "action_mask": spaces.MultiBinary(3)}
        self.single_action_space = spaces.Discrete(3)
        self.single_observation_space = spaces.Dict(single) if has_key else spaces.Discrete(4)

    def _seen(self) -> Any:
        place = np.ones(2, np.int64)
        return {"a": place, "action_mask": self._mask} if self._has_key else place

    def _info(self) -> Any:
        return {} if self._has_key else {"action_mask": self._mask}

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return self._seen(), self._info()

    def step(self, actions: Any) -> Any:
        return self._seen(), np.zeros(2), *np.zeros((2, 2), bool), self._info()


def test_a_vector_implementation_has_its_masks_in_the_observation() -> None:
    def group(mask: Any, has_key: bool) -> EnvGroup:
        arguments = {"mask": mask, "has_key": has_key}
        return _group(Recipe("many", arguments, vector_factory=Many), 2, "native")

    masks = [[1, 0, 1], [0, 1, 0]]
    good = group(masks, True)
    assert (
        _received(good, good.first(), 2).observation["action_mask"].tolist()
        == (np.array(masks) == 1).tolist()
    )
    with pytest.raises(BuildError, match="action_mask"):
        group(masks, False).first()
    for bad in ([[1, 0, 1], [0, 0, 0]], [[1, 0, 1], [0, 2, 0]]):
        with pytest.raises(EnvironmentFailedError, match="environment 1 .*action_mask"):
            group(bad, True).first()
