"""Gymnasium's spaces as specs."""

import numpy as np
import pytest
from gymnasium import spaces

from envs_server.failures import BuildError
from envs_server.spaces import env_spec, to_own_actions
from seedrl.specs import ArraySpec, BoxSpec, DiscreteSpec, EnvSpec, MultiDiscreteSpec

_TWO = spaces.Discrete(2)


def test_spaces_nest_into_specs() -> None:
    space = spaces.Dict(
        {
            "image": spaces.Box(0, 255, (4, 3), np.uint8),
            "rest": spaces.Tuple((spaces.Discrete(7, start=3), spaces.MultiBinary(5))),
            "speed": spaces.Box(-1, 1, (), np.float64),
            "cards": spaces.MultiDiscrete([3, 4]),
            "counts": spaces.Box(np.array([0, -5]), np.array([9, 5]), dtype=np.int32),
            "any": spaces.Box(-np.inf, 1, (2,), np.float32),
            "wide": spaces.Box(0, 2**31 - 1, (2,), np.int32),
            "bytes": spaces.Box(0, 1, (8,), np.uint8),
            "flags": spaces.Box(0, 1, (2,), np.bool_),
        }
    )
    assert env_spec(space, spaces.Discrete(6)) == EnvSpec(
        {
            "any": ArraySpec((2,), "float32"),
            "bytes": ArraySpec((8,), "uint8", (0.0,), (1.0,)),
            "cards": ArraySpec((2,), "int64", (0.0, 0.0), (2.0, 3.0), is_categorical=True),
            "counts": ArraySpec((2,), "int32", (0.0, -5.0), (9.0, 5.0)),
            "flags": ArraySpec((2,), "bool", (0.0,), (1.0,)),
            "image": ArraySpec((4, 3), "uint8"),
            "rest": (
                ArraySpec((), "int64", (3.0,), (9.0,), is_categorical=True),
                ArraySpec((5,), "int8", (0.0,), (1.0,)),
            ),
            "speed": ArraySpec((), "float64", (-1.0,), (1.0,)),
            "wide": ArraySpec((2,), "int32"),
        },
        DiscreteSpec(6),
    )


def test_bounds_of_many_elements_are_the_outermost() -> None:
    low, high = np.zeros(2000), np.arange(1.0, 2001.0)
    spec = env_spec(spaces.Box(low, high, dtype=np.float64), _TWO)
    assert spec.observation == ArraySpec((2000,), "float64", (0.0,), (2000.0,))


def test_actions_may_start_anywhere() -> None:
    space = spaces.Discrete(3, start=-1)
    assert env_spec(_TWO, space).action == DiscreteSpec(3)
    own = to_own_actions(space)(np.array([0, 2], np.int32))
    assert own.dtype == np.int64 and own.tolist() == [-1, 1]


def test_a_box_of_actions_is_rescaled_to_its_bounds() -> None:
    low, high = np.array([[-2.0, 0.0]], np.float32), np.array([[6.0, 0.1]], np.float32)
    space = spaces.Box(low, high)
    spec = env_spec(_TWO, space).action
    assert spec == BoxSpec((1, 2), (-2.0, 0.0), (6.0, float(np.float32(0.1))))
    sent = np.array([[[-1, -1]], [[1, 1]], [[0.5, 0]]], np.float32)
    own = to_own_actions(space)(sent)
    assert own.dtype == np.float32 and own.shape == (3, 1, 2)
    np.testing.assert_array_equal(own[:2], [low, high])
    np.testing.assert_allclose(own[2], [[4.0, 0.05]], rtol=1e-6)
    assert all(space.contains(action) for action in own)


@pytest.mark.parametrize(
    ("space", "spec"),
    [
        (spaces.MultiDiscrete([3, 4], start=[-1, 5]), MultiDiscreteSpec((2,), (3, 4))),
        (spaces.MultiDiscrete([[2, 3], [4, 1]]), MultiDiscreteSpec((2, 2), (2, 3, 4, 1))),
        (spaces.MultiDiscrete([3], np.int8), MultiDiscreteSpec((1,), (3,))),
        (spaces.MultiBinary(3), MultiDiscreteSpec((3,), (2, 2, 2))),
        (spaces.MultiBinary((2, 1)), MultiDiscreteSpec((2, 1), (2, 2))),
    ],
)
def test_several_actions_become_those_of_the_space(
    space: spaces.Space, spec: MultiDiscreteSpec
) -> None:
    assert env_spec(_TWO, space).action == spec
    sent = np.stack([np.zeros(spec.shape, np.int32), spec.largest])
    own = to_own_actions(space)(sent)
    assert own.dtype == space.dtype and own.shape == sent.shape
    assert all(space.contains(action) for action in own)
    first = np.broadcast_to(getattr(space, "start", 0), spec.shape)
    np.testing.assert_array_equal(own, [first, first + spec.largest])


def test_without_two_bounds_actions_are_the_agents_own_numbers() -> None:
    low = np.array([-2, -np.inf, 0, -3e38, -np.inf])
    high = np.array([6, np.inf, np.inf, 3e38, 1])
    for dtype in (np.float32, np.float64):
        space = spaces.Box(low.astype(dtype), high.astype(dtype), dtype=dtype)
        sent = np.array([[-1, -20, -20, -20, -20], [0.5, 20, 20, 20, 20]], np.float32)
        own = to_own_actions(space)(sent)
        np.testing.assert_array_equal(own, [[-2, -20, 0, -20, -20], [4, 20, 20, 20, 1]])
        assert own.dtype == dtype and all(space.contains(action) for action in own)


@pytest.mark.parametrize(
    ("observation", "action"),
    [
        (_TWO, spaces.Box(1, 1, (2,))),
        (_TWO, spaces.Box(0, 9, (2,), np.int64)),
        (_TWO, spaces.Box(0, 1, (2000,))),
        (_TWO, spaces.Tuple((_TWO, _TWO))),
        (_TWO, spaces.MultiBinary(2000)),
        (_TWO, spaces.MultiDiscrete([2, 2**20])),
        (_TWO, spaces.Discrete(2**21)),
        (spaces.Box(0, 1, (2,) * 9), _TWO),
        (spaces.Tuple(()), _TWO),
        (spaces.Text(5), _TWO),
        (spaces.Dict({"a": spaces.Sequence(_TWO)}), _TWO),
    ],
)
def test_other_spaces_are_refused_in_one_line(
    observation: spaces.Space, action: spaces.Space
) -> None:
    with pytest.raises(BuildError) as refusal:
        env_spec(observation, action)
    named = "observation" if action is _TWO else "action"
    assert named in str(refusal.value) and "\n" not in str(refusal.value)
