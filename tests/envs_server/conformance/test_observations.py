"""Observations of every kind, as their spaces declare them and otherwise."""

from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple

from envs_server.conformance.findings import Findings
from envs_server.conformance.observations import check_observation

_BOX = Box(np.array([0, -np.inf], np.float32), np.array([1, np.inf], np.float32))
_IMAGE = Box(0, 255, (2, 2), np.uint8)
_NESTED = Dict({"a": Tuple([_IMAGE, Discrete(3)]), "b": MultiBinary(2)})
_SOUND = {"a": (np.zeros((2, 2), np.uint8), 2), "b": np.ones(2, np.int8)}


def _check(space: Space[Any], value: Any) -> tuple[bool, list[tuple[str, str]]]:
    findings = Findings()
    is_readable = check_observation(space, value, findings, where="reset")
    found = [*findings.errors, *findings.notes]
    return is_readable, [(item.rule.name, item.text.removeprefix("reset: ")) for item in found]


@pytest.mark.parametrize(
    ("space", "value"),
    [
        (_BOX, np.array([1, 1e9], np.float32)),
        (Box(0, 1, (), np.float64), np.float64(0.5)),
        (Discrete(3, start=-1), -1),
        (Discrete(3), np.int32(2)),
        (Discrete(3), np.array(2)),
        (MultiDiscrete([2, 3], start=[0, 5]), np.array([1, 7])),
        (_NESTED, _SOUND),
        (Tuple([Discrete(2)]), [1]),
    ],
)
def test_what_is_declared_passes(space: Space[Any], value: Any) -> None:
    assert _check(space, value) == (True, [])


@pytest.mark.parametrize(
    ("space", "value", "rule", "text"),
    [
        (_BOX, [0.5, 0], "dtype", "expected float32[2] for observation, got list [0.5, 0]"),
        (
            _BOX,
            np.zeros(3, np.float32),
            *("shape", "expected float32[2] for observation, got float32[3]"),
        ),
        (
            Box(0, 1, (), np.float32),
            np.zeros(1, np.float32),
            *("shape", "expected float32[] for observation, got float32[1]"),
        ),
        (
            _IMAGE,
            np.full((2, 2), None),
            *("dtype", "expected uint8[2, 2] for observation, got object[2, 2]"),
        ),
        (
            _NESTED,
            _SOUND["a"],
            *(
                "structure",
                "expected a dict with keys ['a', 'b'] for observation, got a tuple of 2",
            ),
        ),
        (
            _NESTED,
            {**_SOUND, "c": 0},
            *("structure", "expected a dict with keys ['a', 'b'] for observation, got keys "),
        ),
        (
            _NESTED,
            {**_SOUND, "a": _SOUND["a"][:1]},
            *("structure", "expected a tuple of 2 for observation.a, got a tuple of 1"),
        ),
        (Discrete(2), True, "dtype", "expected int64[] for observation, got bool True"),
    ],
)
def test_what_cannot_be_read_is_told(space: Space[Any], value: Any, rule: str, text: str) -> None:
    is_readable, ((found, said),) = _check(space, value)
    assert not is_readable
    assert found == f"observation-{rule}" and said.startswith(text)


@pytest.mark.parametrize(
    ("space", "value", "rule", "text"),
    [
        (_BOX, np.zeros(2), "dtype", "expected float32[2] for observation, got float64[2]"),
        (
            _BOX,
            np.zeros(2, np.uint8),
            *("cast", "expected float32[2] for observation, got uint8[2]"),
        ),
        (
            _BOX,
            np.array([0, np.inf], np.float32),
            *("finite", "expected finite numbers, got inf in observation[1]"),
        ),
        (
            _BOX,
            np.array([1.5, 0], np.float32),
            *("range", "expected 0.0 to 1.0, got 1.5 in observation[0]"),
        ),
        (
            _IMAGE,
            np.zeros((2, 2), np.int32),
            *("dtype", "expected uint8[2, 2] for observation, got int32[2, 2]"),
        ),
        (Discrete(3), 3, "range", "expected 0 to 2, got 3 in observation[]"),
        (Discrete(3), 1.0, "dtype", "expected int64[] for observation, got float 1.0"),
        (
            MultiDiscrete([2, 3]),
            np.array([1, 3]),
            *("range", "expected 0 to 2, got 3 in observation[1]"),
        ),
        (
            _NESTED,
            {**_SOUND, "b": np.array([0, 2], np.int8)},
            *("range", "expected 0 to 1, got 2 in observation.b[1]"),
        ),
    ],
)
def test_wrong_values_are_told(space: Space[Any], value: Any, rule: str, text: str) -> None:
    _, ((found, said),) = _check(space, value)
    assert (found, said) == (f"observation-{rule}", text)


def test_every_wrong_leaf_is_told() -> None:
    wrong = {"a": (np.full((2, 2), 3, np.float32), 5), "b": np.ones(3, np.int8)}
    _, found = _check(_NESTED, wrong)
    assert [name for name, _ in found] == [
        "observation-dtype",
        "observation-range",
        "observation-shape",
    ]
