"""What trees of arrays must be like, and how messages show what they are like instead."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedrl.contracts.shapes import (
    require_array,
    require_arrays,
    require_rows,
    require_same,
    shown,
)
from seedrl.errors import ConfigError


@pytest.mark.parametrize(
    ("tree", "text"),
    [
        (jnp.zeros((2, 3)), "float32[2, 3]"),
        (np.zeros(2), "float32[2]"),  # what jax makes of it
        (3, "int32[]"),
        ((), "()"),
        (None, "None"),
        ({}, "an empty dict"),
        ("text", "a str"),
        ((np.float32(1), [jnp.int32(2)], len), "tuple(float32[], int32[], builtin_function_or_"),
        ([1] * 100, f"list({', '.join(['int32[]'] * 100)}"[:120] + "..."),
    ],
)
def test_a_tree_is_shown_by_its_shapes(tree: Any, text: str) -> None:
    assert shown(tree).startswith(text)


@pytest.mark.parametrize(
    "value", [np.zeros(2, np.int32), np.zeros((2, 1), np.float32), 0.0, "ab", np.array(["a", "b"])]
)
def test_an_array_of_another_kind_is_refused(value: Any) -> None:
    require_array("x", np.zeros(2), (2,), ["float32"], "do")
    with pytest.raises(ConfigError, match=r"^x: expected float32\[2\], got .*; do$"):
        require_array("x", value, (2,), ["float32", "bfloat16"], "do")


@pytest.mark.parametrize("value", [0.5, np.float64(0.5), np.full((), 0.5)])
def test_numbers_of_the_host_are_judged_by_their_kind(value: Any) -> None:
    with jax.enable_x64(True):
        require_array("x", value, (), ["float32"], "do")
        with pytest.raises(ConfigError, match=r"^x: expected int32\[\], got float64\[\]; do$"):
            require_array("x", value, (), ["int32"], "do")
        with pytest.raises(ConfigError, match=r"^x: expected float32\[\], got float64\[\]; do$"):
            require_array("x", jnp.asarray(value), (), ["float32"], "do")


class _Unreadable:
    """Equal to all of its kind, each of another text."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Unreadable)

    def __hash__(self) -> int:
        return 0


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class _Node:
    leaf: Any
    static: Any = dataclasses.field(metadata={"static": True})


def test_structures_are_the_same_if_they_are_equal() -> None:
    one, other = (_Node(np.zeros(2), _Unreadable()) for _ in range(2))
    require_same("x", one, other, "do")
    with pytest.raises(ConfigError, match=r"^x: expected PyTreeDef.* got PyTreeDef.*; do$"):
        require_same("x", one, _Node(np.zeros(2), 3), "do")


def test_a_leaf_that_is_no_array_is_named() -> None:
    require_arrays("params", {"w": np.zeros(2), "n": 3, "none": None})
    with pytest.raises(ConfigError, match=r"^params\['act'\]: expected an array, got a str$"):
        require_arrays("params", {"w": np.zeros(2), "act": "relu"})


def test_a_leaf_without_a_row_for_each_of_the_batch_is_named() -> None:
    require_rows("carry", (np.zeros((3, 2)), ()), 3)
    for leaf, text in (np.zeros(2), r"float32\[2\]"), (0.0, r"float32\[\]"):
        with pytest.raises(ConfigError, match=rf"^carry\[1\]: expected \[3, ...\], .* got {text}$"):
            require_rows("carry", (np.zeros((3, 2)), leaf), 3)


@pytest.mark.parametrize(
    ("got", "text"),
    [
        (
            {"h": jnp.zeros(3), "c": jnp.zeros(2)},
            r"x\['h'\]: expected float32\[2\], got float32\[3",
        ),
        ({"c": jnp.zeros(2)}, r"x\['h'\]: expected float32\[2\], got nothing; do"),
        ({"h": jnp.zeros(2), "c": jnp.zeros(2), "o": 1}, r"x\['o'\]: expected nothing, got int32"),
        (
            {"h": jnp.zeros(2), "c": jnp.zeros(2, jnp.bfloat16)},
            r"x\['c'\]: expected float32\[2\], got bfloat16\[2\]; do",
        ),
        ({"h": jnp.zeros(2), "c": jnp.zeros(2), "e": ()}, r"x: expected PyTreeDef.* got PyTreeDef"),
    ],
)
def test_a_tree_of_another_kind_is_refused_by_its_first_difference(got: Any, text: str) -> None:
    expected = {"h": np.zeros(2, np.float32), "c": jnp.zeros(2)}
    require_same("x", expected, jax.tree.map(jnp.asarray, expected), "do")
    with pytest.raises(ConfigError, match=f"^{text}"):
        require_same("x", expected, got, "do")
