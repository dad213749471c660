"""Specs have one order, one text, and say how they differ."""

import numpy as np
import pytest

from seedrl.specs import ArraySpec, EnvSpec

_IMAGE = ArraySpec((84, 84), "uint8")
_SPEED = ArraySpec((), "float32")
_SPEC = EnvSpec({"z": (_SPEED, {"b": _IMAGE, "a": _SPEED}), "c": _IMAGE}, num_actions=4)


def test_leaves_come_in_wire_order_with_their_paths() -> None:
    assert _SPEC.leaves() == [
        ("observation.c", _IMAGE),
        ("observation.z.0", _SPEED),
        ("observation.z.1.a", _SPEED),
        ("observation.z.1.b", _IMAGE),
    ]
    assert EnvSpec(_IMAGE, 2).leaves() == [("observation", _IMAGE)]


def test_flatten_and_unflatten_are_inverse() -> None:
    tree = _SPEC.unflatten([1, 2, 3, 4])
    assert tree == {"c": 1, "z": (2, {"a": 3, "b": 4})}
    assert _SPEC.flatten(tree) == [1, 2, 3, 4]


def test_json_is_canonical_and_read_back() -> None:
    turned = EnvSpec({"c": _IMAGE, "z": (_SPEED, {"a": _SPEED, "b": _IMAGE})}, num_actions=4)
    assert _SPEC.to_json() == turned.to_json()
    assert EnvSpec.from_json(_SPEC.to_json()) == _SPEC


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"observation": 3, "num_actions": 2}', '{"observation": {"array": [[], 3]}}'],
)
def test_a_text_that_is_no_spec_is_refused(text: str) -> None:
    with pytest.raises((ValueError, AttributeError)):
        EnvSpec.from_json(text)


def test_num_bytes_counts_one_array() -> None:
    assert (_IMAGE.num_bytes, _SPEED.num_bytes) == (84 * 84, 4)
    assert ArraySpec((0, 3), "int64").num_bytes == 0


@pytest.mark.parametrize("dtype", ["object", "str", "complex64", "datetime64[s]"])
def test_only_numbers_and_bools_are_arrays(dtype: str) -> None:
    with pytest.raises(ValueError, match="expected a bool, integer or float array"):
        ArraySpec((), dtype)


def test_every_difference_gets_its_line() -> None:
    other = EnvSpec({"c": ArraySpec((42, 84), "uint8"), "d": _SPEED}, num_actions=5)
    assert _SPEC.difference(other) == [
        "observation.c: expected uint8[84, 84], got uint8[42, 84]",
        "observation.z.0: expected float32[], got nothing",
        "observation.z.1.a: expected float32[], got nothing",
        "observation.z.1.b: expected uint8[84, 84], got nothing",
        "observation.d: expected nothing, got float32[]",
        "num_actions: expected 4, got 5",
    ]
    assert _SPEC.difference(_SPEC) == []


def test_leaves_of_a_value_may_be_arrays() -> None:
    value = {"c": np.zeros(2), "z": (np.ones(2), {"a": np.ones(2), "b": np.zeros(2)})}
    assert [leaf.sum() for leaf in _SPEC.flatten(value)] == [0, 2, 2, 0]
