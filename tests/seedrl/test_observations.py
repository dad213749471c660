"""What networks make of an observation: each row of the table, and what cannot be told."""

from typing import Any

import pytest

from seedrl.errors import ConfigError
from seedrl.observations import describe, meaning_of, picture_axes, view
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec

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


@pytest.mark.parametrize(
    ("observation", "line"),
    [
        (
            {"picture": ArraySpec((84, 84, 3), "uint8"), "position": ArraySpec((4,), "float32")},
            "picture: picture 84 x 84 x 3, convolved, 4 frames; position: 4 numbers, dense",
        ),
        ((_categories((), 7.0),), "0: one of 8, one-hot"),
        (_categories((), 4095.0), "one of 4096, one-hot"),
        (_categories((2,), 2.0), "2 categories, one-hot"),
        (
            {"action_mask": ArraySpec((2,), "bool"), "observation": _categories((), 7.0)},
            "one of 8, one-hot; action mask of 2",
        ),
    ],
)
def test_an_observation_is_one_line(observation: Any, line: str) -> None:
    assert describe(EnvSpec(observation, DiscreteSpec(2))) == f"observation: {line}"


@pytest.mark.parametrize("leaf", [_categories((), 4096.0), _categories((7, 7, 3), 255.0)])
def test_too_many_categories_are_refused_by_name(leaf: ArraySpec) -> None:
    with pytest.raises(ConfigError) as caught:
        view(EnvSpec({"a": leaf}, DiscreteSpec(2)), "mlp", None)
    assert "observation.a" in str(caught.value)
