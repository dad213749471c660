"""Gymnasium's spaces as specs."""

import numpy as np
import pytest
from gymnasium import spaces

from envs_server.spaces import env_spec, first_action
from envs_server.vector import BuildError
from seedrl.specs import ArraySpec, EnvSpec

_TWO = spaces.Discrete(2)


def test_spaces_nest_into_specs() -> None:
    space = spaces.Dict(
        {
            "image": spaces.Box(0, 255, (4, 3), np.uint8),
            "rest": spaces.Tuple((spaces.Discrete(7, start=3), spaces.MultiBinary(5))),
            "speed": spaces.Box(-1, 1, (), np.float64),
            "cards": spaces.MultiDiscrete([3, 4]),
        }
    )
    assert env_spec(space, spaces.Discrete(6)) == EnvSpec(
        {
            "cards": ArraySpec((2,), "int64"),
            "image": ArraySpec((4, 3), "uint8"),
            "rest": (ArraySpec((), "int64"), ArraySpec((5,), "int8")),
            "speed": ArraySpec((), "float64"),
        },
        num_actions=6,
    )


def test_actions_may_start_anywhere() -> None:
    assert first_action(spaces.Discrete(3, start=-1)) == -1
    assert env_spec(_TWO, spaces.Discrete(3, start=-1)).num_actions == 3


@pytest.mark.parametrize(
    ("observation", "action", "reason"),
    [
        (_TWO, spaces.Box(0, 1, (2,)), r"expected a Discrete action space, got Box\(0.0, 1.0"),
        (_TWO, spaces.MultiDiscrete([2, 2]), "expected a Discrete action space, got MultiDiscrete"),
        (spaces.Text(5), _TWO, r"for observation, got Text\("),
        (spaces.Dict({"a": spaces.Sequence(_TWO)}), _TWO, r"for observation\.a, got Sequence"),
    ],
)
def test_other_spaces_are_refused_in_one_line(
    observation: spaces.Space, action: spaces.Space, reason: str
) -> None:
    with pytest.raises(BuildError, match=reason) as refusal:
        env_spec(observation, action)
    assert "\n" not in str(refusal.value)
