"""A group between payloads: numbers, actions as the environment counts them, and faults."""

import fractions
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from envs_server import metrics
from envs_server.build import Recipe, build
from envs_server.failures import EnvironmentFailedError
from envs_server.groups import EnvGroup
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec
from seedrl.types import StepType, TimeStep
from seedrl.wire.framing import ActionsPayload, FramedStep, receive_from_env_server
from seedrl.wire.learner_payload import StepReader, pack_actions, pack_reset
from seedrl.wire.payload import StepHeader, read_header

_SPEC = EnvSpec(ArraySpec((), "float32", (-9.0,), (9.0,)), DiscreteSpec(3))
_LAYOUT = StepReader(_SPEC, 2)


class Recorder(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """Two environments whose actions start at -1; each step gives the next of `steps`.

    That is observations, rewards, terminations and truncations; the first ones have zeros.
    """

    metadata = {"autoreset_mode": gymnasium.vector.AutoresetMode.NEXT_STEP}  # noqa: RUF012
    single_observation_space = Box(-9, 9, (), np.float32)
    single_action_space = Discrete(3, start=-1)
    num_envs = 2

    def __init__(self, *steps: tuple[Any, ...]) -> None:
        self.actions: list[list[int]] = []
        self.is_closed = False
        self._steps = iter(steps)

    def group(self, index: int) -> EnvGroup:
        """As a group with that number."""
        recipe = Recipe("recorder", {}, vector_factory=lambda num_envs: self)
        return EnvGroup(index, build(recipe, "native", 2), [1, 2])

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return np.zeros(2, np.float32), {}

    def step(self, actions: np.ndarray) -> Any:
        self.actions.append(actions.tolist())
        observation, *others = next(self._steps)
        return np.full(2, observation, np.float32), *map(np.array, others), {}

    def close_extras(self, **_: Any) -> None:
        self.is_closed = True


_QUIET = ([0.0, 0.0], [False, False], [False, False])


def _read(message: FramedStep) -> tuple[StepHeader, list[float]]:
    data = receive_from_env_server(message.message)
    return read_header(data), _LAYOUT.unpack(data).observation.tolist()


def _answer(sequence: int, *actions: int) -> ActionsPayload:
    return ActionsPayload(pack_actions(4, sequence, np.array(actions, np.int32)))


@pytest.mark.parametrize("vectorization", ["sync", "native"])
def test_a_reset_begins_all_episodes_anew_and_none_a_second_time(vectorization: str) -> None:
    cartpoles = build(Recipe("CartPole-v1", {"max_episode_steps": 3}), vectorization, 2)
    group = EnvGroup(0, cartpoles, [5, 6])
    reader = StepReader(group.spec, 2)

    def read(message: FramedStep) -> tuple[int, list[int], list[list[float]]]:
        data = receive_from_env_server(message.message)
        step = reader.unpack(data)
        return read_header(data).sequence, step.step_type.tolist(), step.observation.tolist()

    def push(sequence: int) -> FramedStep:
        return group.step(ActionsPayload(pack_actions(0, sequence, np.zeros(2, np.int32))))

    _, _, begun = read(group.first())
    assert read(push(0))[1] == [StepType.MID] * 2
    # In the middle of an episode, and after the end of one.
    sequence, kinds, second = read(group.step(ActionsPayload(pack_reset(0, 1))))
    assert (sequence, kinds) == (2, [StepType.FIRST] * 2)
    assert [read(push(number))[1] for number in (2, 3, 4)] == [
        [StepType.MID] * 2,
        [StepType.MID] * 2,
        [StepType.LAST] * 2,
    ]
    _, kinds, third = read(group.step(ActionsPayload(pack_reset(0, 5))))
    assert kinds == [StepType.FIRST] * 2
    assert read(push(6))[1] == [StepType.MID] * 2
    assert len({tuple(row) for row in begun + second + third}) == 6


def test_a_reset_carries_no_metrics_of_the_episodes_that_ended_before_it() -> None:
    wrapped = Recipe(
        "CartPole-v1",
        {"max_episode_steps": 1},
        wrappers=(gymnasium.wrappers.RecordEpisodeStatistics,),
    )
    group = EnvGroup(0, build(wrapped, "sync", 2), [5, 6], ["episode.r"])
    reader = StepReader(group.spec, 2, 1)
    group.first()
    actions = ActionsPayload(pack_actions(0, 0, np.zeros(2, np.int32)))
    last = receive_from_env_server(group.step(actions).message)
    assert reader.metrics(last).shape == (2, 1)
    begun = receive_from_env_server(group.step(ActionsPayload(pack_reset(0, 1))).message)
    assert reader.unpack(begun).step_type.tolist() == [StepType.FIRST] * 2
    assert reader.metrics(begun).shape == (0, 1)


def test_steps_are_numbered_and_actions_counted_from_the_spaces_start() -> None:
    recorder = Recorder((1, *_QUIET), (2, *_QUIET))
    group = recorder.group(4)
    assert group.spec == _SPEC
    assert _read(group.first()) == (StepHeader(4, 2, 0), [0, 0])
    assert _read(group.step(_answer(0, 0, 2))) == (StepHeader(4, 2, 1), [1, 1])
    assert _read(group.step(_answer(1, 1, 1))) == (StepHeader(4, 2, 2), [2, 2])
    assert recorder.actions == [[-1, 1], [0, 0]]
    group.close()
    assert recorder.is_closed


# Literal sequences of rows, worked by hand, for environments that end in every way.
FIRST, MID, LAST = StepType.FIRST, StepType.MID, StepType.LAST


class Short(gymnasium.Env[np.ndarray, np.int64]):
    """Episodes of two steps that end as told; observations count all resets and steps."""

    observation_space = gymnasium.spaces.Box(0, 255, (), np.uint8)
    action_space = gymnasium.spaces.Discrete(4)

    def __init__(self, terminates: bool, truncates: bool) -> None:
        self._end = (terminates, truncates)
        self._count, self._left = -1, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._left = 2
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        self._left -= 1
        terminated, truncated = self._end if self._left == 0 else (False, False)
        return self._observe(), 10.0 + action, terminated, truncated, {}

    def _observe(self) -> np.ndarray:
        self._count += 1
        return np.array(self._count, np.uint8)


def _rows(terminates: bool, truncates: bool, actions: list[int]) -> list[list[float]]:
    """(step type, reward, discount, observation) of the first row and after each action."""
    recipe = Recipe("short", {"terminates": terminates, "truncates": truncates}, (), Short)
    group = EnvGroup(0, build(recipe, "sync", 1), [0])
    steps = [_copy(group.reset())]
    steps += [_copy(group.advance(np.array([action]))) for action in actions]
    return steps


def _copy(step: TimeStep) -> list[float]:
    return [leaf.item() for leaf in step]


@pytest.mark.parametrize(
    ("terminates", "truncates", "discount"),
    [(True, False, 0.0), (False, True, 1.0), (True, True, 0.0)],
)
def test_an_episode_of_two_steps_is_these_rows(
    terminates: bool, truncates: bool, discount: float
) -> None:
    assert _rows(terminates, truncates, [1, 2, 3, 1, 0, 3]) == [
        [FIRST, 0.0, 1.0, 0],
        [MID, 11.0, 1.0, 1],
        [LAST, 12.0, discount, 2],
        [FIRST, 0.0, 1.0, 3],  # action 3 is ignored
        [MID, 11.0, 1.0, 4],
        [LAST, 10.0, discount, 5],
        [FIRST, 0.0, 1.0, 6],
    ]


def test_rows_of_one_vector_do_not_touch_each_other() -> None:
    group = Recorder(
        (0, [1.0, 2.0], [True, False], [False, False]),
        # A vector environment may leave an old reward on the row that starts an episode.
        (0, [9.0, 3.0], [False, False], [False, True]),
        (0, [4.0, 9.0], [False, False], [False, False]),
    ).group(0)
    group.reset()
    steps = [group.advance(np.zeros(2, np.int64)) for _ in range(3)]
    assert [step.step_type.tolist() for step in steps] == [[LAST, MID], [FIRST, LAST], [MID, FIRST]]
    assert [step.reward.tolist() for step in steps] == [[1, 2], [0, 3], [4, 0]]
    assert [step.discount.tolist() for step in steps] == [[0, 1], [1, 1], [1, 1]]
    assert steps[0].step_type.dtype == np.uint8
    assert steps[0].reward.dtype == steps[0].discount.dtype == np.float32


def test_an_episode_without_a_step_is_a_fault() -> None:
    ended = (0, [0.0, 0.0], [False, True], [False, False])
    group = Recorder(ended, ended).group(0)
    group.reset()
    group.advance(np.zeros(2, np.int64))
    with pytest.raises(EnvironmentFailedError, match="environment 1 "):
        group.advance(np.zeros(2, np.int64))


def test_a_vector_whose_observations_are_not_as_declared_has_failed() -> None:
    recorder = Recorder()
    recorder.single_observation_space = Box(-9, 9, (), np.float64)
    with pytest.raises(EnvironmentFailedError, match="observation"):
        recorder.group(0).reset()


@pytest.mark.parametrize("wrong", [0, 1, 2])
def test_a_vector_whose_rewards_or_ends_are_not_one_for_each_has_failed(wrong: int) -> None:
    step = [[0.0, 0.0], [False, False], [False, False]]
    step[wrong] = step[wrong][:1]
    group = Recorder((0, *step)).group(0)
    group.reset()
    with pytest.raises(EnvironmentFailedError, match="shape"):
        group.advance(np.zeros(2, np.int64))


class Measured(Short):
    """Measures something in its last step, the first episode of environment 1 apart."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._seed = seed if seed is not None else 0
        return super().reset(seed=seed)

    def step(self, action: Any) -> Any:
        *result, _ = super().step(action)
        if self._left or self._seed == 1:
            return *result, {"left": self._left, "name": "x"}
        return *result, {
            "score": 0.5,
            "episode": {"r": np.float32(3), "t.x": 1},
            "won": True,
            "name": "x",
            "huge": 1e300,
        }


def test_numbers_of_info_go_with_last_rows_by_name() -> None:
    recipe = Recipe("short", {"terminates": True, "truncates": False}, (), Measured)
    names = ["score", "episode.r", "episode.t.x", "won", "missing", "name", "huge", "left.r"]
    group = EnvGroup(0, build(recipe, "sync", 2), [0, 1], names)
    group.reset()
    assert group.metrics.shape == (0, 8)
    group.advance(np.zeros(2, np.int64))
    assert group.metrics.shape == (0, 8)
    step = group.advance(np.zeros(2, np.int64))
    assert step.step_type.tolist() == [LAST, LAST]
    assert group.metrics.dtype == np.float32
    nan = np.nan
    np.testing.assert_array_equal(group.metrics, [[0.5, 3, 1, 1, nan, nan, nan, nan], [nan] * 8])
    group.advance(np.zeros(2, np.int64))
    assert group.metrics.shape == (0, 8)


class Unshowable(dict[Any, Any]):
    """Raises whatever is done with it."""

    def _raise(self, *_: Any) -> Any:
        raise RuntimeError("not here")

    __contains__ = __getitem__ = get = __repr__ = __float__ = _raise  # type: ignore[assignment]


class Tensor:
    """A scalar of another library, or something that looks like one."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __array__(self, *_: Any, **__: Any) -> Any:
        return np.array(self._value)


_ITSELF: dict[Any, Any] = {"a": 1}
_ITSELF["itself"] = _ITSELF


@pytest.mark.parametrize(
    ("info", "number"),
    [
        ({"score": "no"}, None),
        ({"score": {"score": 1}}, None),
        ({"score": [1, [2, 3]]}, None),
        ({"score": 10**400}, None),
        ({"score": fractions.Fraction(10**400)}, None),
        ({"score": 1j}, None),
        ({"score": Unshowable()}, None),
        ({"score": Tensor("a")}, None),
        ({"score": Tensor([1, 2])}, None),
        (Unshowable(score=1), None),
        ([], None),
        (None, None),
        ({"score": Tensor(0.75), 3: 1, ("a", 1): 2, "itself": _ITSELF}, 0.75),
        ({"score": np.float16(0.75), "ragged": [[1], [2, 3]]}, 0.75),
        ({"score": fractions.Fraction(3, 4)}, None),
        ({"score": True}, 1.0),
        ({"score": 2**62}, 2.0**62),
    ],
)
def test_nothing_in_info_fails_an_environment(
    info: Any,
    number: float | None,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A text among numbers counted as a failure, nine of twelve were left out."""

    class Odd(Short):
        def step(self, action: Any) -> Any:
            return *super().step(action)[:-1], info

    monkeypatch.setattr(metrics, "_ignored", set())
    recipe = Recipe("short", {"terminates": True, "truncates": False}, (), Odd)
    group = EnvGroup(0, build(recipe, "sync", 2), [0, 1], ["score"])
    group.reset()
    for _ in range(2):
        for _ in range(2):
            step = group.advance(np.zeros(2, np.int64))
        assert step.step_type.tolist() == [LAST, LAST]
        wanted = np.nan if number is None else number
        np.testing.assert_array_equal(group.metrics, [[wanted]] * 2)
        group.advance(np.zeros(2, np.int64))
    # One line for what is there and no number, however many episodes end with it.
    assert len(caplog.records) == (number is None and isinstance(info, dict))
    assert "Traceback" not in caplog.text
