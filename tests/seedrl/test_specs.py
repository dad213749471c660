"""Specs have one order, one text, and say how they differ."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from seedrl.specs import (
    ArraySpec,
    BoxSpec,
    DiscreteSpec,
    EnvSpec,
    MultiDiscreteSpec,
    TokensSpec,
)
from seedrl.types import Tree

_IMAGE = ArraySpec((84, 84), "uint8")
_SPEED = ArraySpec((), "float32")
_SPEC = EnvSpec({"z": (_SPEED, {"b": _IMAGE, "a": _SPEED}), "c": _IMAGE}, DiscreteSpec(4))


def test_leaves_come_in_wire_order_with_their_paths() -> None:
    assert _SPEC.leaves() == [
        ("observation.c", _IMAGE),
        ("observation.z.0", _SPEED),
        ("observation.z.1.a", _SPEED),
        ("observation.z.1.b", _IMAGE),
    ]
    assert EnvSpec(_IMAGE, DiscreteSpec(2)).leaves() == [("observation", _IMAGE)]


def test_flatten_and_unflatten_are_inverse() -> None:
    tree = _SPEC.unflatten([1, 2, 3, 4])
    assert tree == {"c": 1, "z": (2, {"a": 3, "b": 4})}
    assert _SPEC.flatten(tree) == [1, 2, 3, 4]


_MASK = ArraySpec((4,), "bool")


@pytest.mark.parametrize(
    ("observation", "seen"),
    [
        ({"observation": _IMAGE, "action_mask": _MASK}, _IMAGE),
        ({"z": _IMAGE, "action_mask": _MASK}, {"z": _IMAGE}),
        ({"observation": {"z": _IMAGE}, "action_mask": _MASK}, {"z": _IMAGE}),
        ({"observation": _IMAGE, "z": _SPEED, "action_mask": _MASK}, None),
        # No masks: elsewhere in the tree it is an array like any other.
        (({"action_mask": _IMAGE},), ({"action_mask": _IMAGE},)),
        (_IMAGE, _IMAGE),
    ],
)
def test_networks_are_built_for_an_observation_without_its_mask(
    observation: Tree, seen: Tree
) -> None:
    spec = EnvSpec(observation, DiscreteSpec(4))
    assert spec.has_mask == (spec.without_mask() != spec)
    assert spec.without_mask().observation == (
        {"observation": _IMAGE, "z": _SPEED} if seen is None else seen
    )


@pytest.mark.parametrize(
    ("mask", "action"),
    [
        (ArraySpec((5,), "bool"), DiscreteSpec(4)),
        (ArraySpec((4, 1), "bool"), DiscreteSpec(4)),
        (ArraySpec((4,), "float32"), DiscreteSpec(4)),
        ({"deeper": _MASK}, DiscreteSpec(4)),
        (_MASK, BoxSpec((4,), (0.0,) * 4, (1.0,) * 4)),
    ],
)
def test_a_mask_that_does_not_fit_the_actions_is_refused_by_name(mask: Tree, action: Any) -> None:
    with pytest.raises(ValueError, match=r"^observation\.action_mask: "):
        EnvSpec({"observation": _IMAGE, "action_mask": mask}, action)
    with pytest.raises(ValueError, match=r"^observation\.action_mask: "):
        EnvSpec({"action_mask": mask}, DiscreteSpec(4))


@pytest.mark.parametrize(
    "make",
    [
        *(lambda dtype=dtype: ArraySpec((), dtype) for dtype in ("object", "str", "complex64")),
        lambda: ArraySpec((-4,), "float32"),
        lambda: ArraySpec((True,), "float32"),
        lambda: ArraySpec((10**12,), "uint8"),
        lambda: ArraySpec((1,) * 9, "uint8"),
        *(
            lambda low=low, high=high: ArraySpec((2,), "int64", low, high)
            for low, high in (
                ((0.0,), ()),
                ((), (1.0,)),
                ((0.0,) * 3, (1.0,) * 3),
                ((1.0,), (0.0,)),
                ((float("nan"),), (0.0,)),
                ((0.0,), (2.0**31,)),
            )
        ),
        lambda: ArraySpec((1025,), "int64", (0.0,) * 1025, (1.0,) * 1025),
        lambda: ArraySpec((), "int64", is_categorical=True),
        lambda: ArraySpec((), "int64", (0.0,), (1.5,), is_categorical=True),
        lambda: ArraySpec((), "float32", (0.0,), (1.0,), is_categorical=True),
        lambda: DiscreteSpec(0),
        lambda: DiscreteSpec(2**20 + 1),
        lambda: DiscreteSpec(True),
        lambda: BoxSpec((2,), (0.0,), (1.0,)),
        lambda: BoxSpec((2,), -1.0, 1.0),  # type: ignore[arg-type]
        *(
            lambda low=low, high=high: BoxSpec((1,), (low,), (high,))
            for low, high in ((1.0, 1.0), (np.inf, np.inf), (0.0, 1e39), (np.nan, 1.0))
        ),
        lambda: BoxSpec((1025,), (0.0,) * 1025, (1.0,) * 1025),
        *(
            lambda shape=shape, counts=counts: MultiDiscreteSpec(shape, counts)
            for shape, counts in (
                ((2,), (3,)),
                ((2,), (3, 0)),
                ((2,), (3, True)),
                ((2,), 3),
                ((0,), ()),
                ((1025,), (2,) * 1025),
                ((2,), (2**19 + 1, 1)),
            )
        ),
        *(
            lambda sizes=sizes: TokensSpec(*sizes)
            for sizes in ((1, 4, 4, 0), (2**20 + 1, 4, 4, 0), (9, 0, 4, 0), (9, 4, 2**16 + 1, 0))
        ),
        lambda: TokensSpec(9, 4, 4, 9),
        lambda: TokensSpec(9, 4, True, 8),
        lambda: TokensSpec(2, 4, 4, 1, "abc"),
        lambda: EnvSpec(_SPEED, TokensSpec(9, 4, 4, 8)),
        lambda: EnvSpec(TokensSpec(9, 5, 4, 8).turn, TokensSpec(9, 4, 4, 8)),
        lambda: EnvSpec((), DiscreteSpec(2)),
        lambda: EnvSpec((_SPEED,) * 257, DiscreteSpec(2)),
        lambda: EnvSpec((ArraySpec((2**28,), "bool"), _SPEED), DiscreteSpec(2)),
    ],
)
def test_what_is_beyond_the_bounds_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(ValueError):
        make()


def test_the_largest_that_is_allowed_is() -> None:
    EnvSpec((_SPEED,) * 256, DiscreteSpec(2**20))
    EnvSpec(ArraySpec((2**28,), "bool"), BoxSpec((1024,), (0.0,) * 1024, (1.0,) * 1024))
    EnvSpec(_SPEED, MultiDiscreteSpec((1024,), (2**10,) * 1024))
    tree: Tree = ArraySpec((1,) * 8, "float64")
    for _ in range(7):
        tree = {"a": tree}
    EnvSpec(tree, DiscreteSpec(1))
    with pytest.raises(ValueError):
        EnvSpec({"a": tree}, DiscreteSpec(1))
