"""What networks make of an observation: each row of the table, and what cannot be told."""

import pytest

from seedrl.errors import ConfigError
from seedrl.observations import describe, meaning_of, picture_axes, spec_difference, view
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec, TokensSpec

_SPEED, _PICTURE = ArraySpec((), "float32"), ArraySpec((84, 84), "uint8")
_NESTED = EnvSpec({"z": (_SPEED, {"b": _PICTURE, "a": _SPEED}), "c": _PICTURE}, DiscreteSpec(4))
_PICTURES = {
    # Shape, and the axes of rows and columns.
    (84, 84): (0, 1),
    (84, 84, 3): (0, 1),
    (84, 84, 1): (0, 1),
    (210, 160, 3): (0, 1),
    (84, 84, 40): (0, 1),  # many channels, but one square
    (3, 84, 84): (1, 2),
    (1, 60, 80): (1, 2),
    (4, 84, 84, 3): (1, 2),
    (4, 3, 60, 80): (2, 3),
    (10, 10, 4): (0, 1),
    (8, 8, 20): (0, 1),
    (20, 8, 8): (1, 2),
    (84, 84, 84): None,
    (84, 3, 84): None,
    (50, 40, 100): None,
    (64, 48, 40): None,
    (84,): None,
    (): None,
}


@pytest.mark.parametrize("shape", _PICTURES)
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_rows_and_columns_are_told_by_sizes_whatever_the_dtype(
    shape: tuple[int, ...], dtype: str
) -> None:
    axes = _PICTURES[shape]
    leaf = ArraySpec(shape, dtype)
    assert picture_axes(leaf) == axes
    spec = EnvSpec({"a": leaf}, DiscreteSpec(2))
    if axes is None and len(shape) > 1:
        with pytest.raises(ConfigError) as caught:
            view(spec, "auto", None)
        assert "observation.a" in str(caught.value)
        assert "observation.a" in describe(spec)
        assert view(spec, "mlp", None) == ("mlp", 1)
        return
    is_large = axes is not None and min(shape[axis] for axis in axes) >= 36
    assert view(spec, "auto", None)[0] == ("nature" if is_large else "mlp")
    assert meaning_of(leaf, "nature").kind == ("picture" if is_large else "dense")


def _categories(shape: tuple[int, ...], last: float) -> ArraySpec:
    return ArraySpec(shape, "int64", (0.0,), (last,), is_categorical=True)


def test_categories_are_counted_over_all_elements() -> None:
    """MultiDiscrete([3, 4]), seven inputs, was called 2 categories."""
    leaf = ArraySpec((2,), "int64", (1.0, 1.0), (3.0, 4.0), is_categorical=True)
    assert "7 categories over 2 elements" in describe(EnvSpec(leaf, DiscreteSpec(2)))


@pytest.mark.parametrize("leaf", [_categories((), 4096.0), _categories((7, 7, 3), 255.0)])
def test_too_many_categories_are_refused_by_name(leaf: ArraySpec) -> None:
    with pytest.raises(ConfigError) as caught:
        view(EnvSpec({"a": leaf}, DiscreteSpec(2)), "mlp", None)
    assert "observation.a" in str(caught.value)


def test_every_difference_gets_its_line() -> None:
    other = EnvSpec({"c": ArraySpec((42, 84), "uint8"), "d": _SPEED}, DiscreteSpec(5))
    assert spec_difference(_NESTED, other) == [
        "observation.c: expected uint8[84, 84], got uint8[42, 84]",
        "observation.z.0: expected float32[], got nothing",
        "observation.z.1.a: expected float32[], got nothing",
        "observation.z.1.b: expected uint8[84, 84], got nothing",
        "observation.d: expected nothing, got float32[]",
        "action.num_actions: expected 4, got 5",
    ]
    assert spec_difference(_NESTED, _NESTED) == []


def test_token_specs_differ_by_each_size() -> None:
    one, other, lettered = (
        EnvSpec(tokens.turn, tokens)
        for tokens in (TokensSpec(9, 4, 6, 8), TokensSpec(9, 4, 7, 3), TokensSpec(9, 4, 6, 8, "ab"))
    )
    assert spec_difference(one, other) == [
        "action.longest_completion: expected 6, got 7",
        "action.end: expected 8, got 3",
    ]
    assert spec_difference(one, lettered) == []


def test_bounds_differ_only_from_other_bounds() -> None:
    one, other, none = (
        EnvSpec(ArraySpec((), "int64", *bounds), DiscreteSpec(2))
        for bounds in (((0.0,), (7.0,), True), ((0.0,), (8.0,), True), ())
    )
    assert spec_difference(one, none) == spec_difference(none, one) == []
    assert spec_difference(one, other) == [
        "observation: expected int64[] categories of 0 to 7, got int64[] categories of 0 to 8"
    ]


@pytest.mark.parametrize(("shape", "differs"), [((), False), ((4,), False), ((40, 40), True)])
def test_bounds_of_floats_count_only_for_pictures(shape: tuple[int, ...], differs: bool) -> None:
    one, other = (
        EnvSpec(ArraySpec(shape, "float32", (0.0,), (high,)), DiscreteSpec(2)) for high in (1, 2)
    )
    assert bool(spec_difference(one, other)) == differs
