"""What the bundled networks make of an observation: one table, for them and for what is printed.

The first row that fits an array counts:

| array | taken as |
|---|---|
| categories (`Discrete`, `MultiDiscrete`) | one-hot, dense |
| picture of at least the size that the torso needs | scaled to 0 to 1 by its bounds, convolved |
| integers with bounds, uint8 | scaled to 0 to 1 by their bounds, dense |
| floats, flags, integers without bounds | numbers as they are, dense |

Imports no jax, because `seedrl check-env` prints it too.
"""

import dataclasses
import math
from typing import Literal, NamedTuple

import numpy as np

from seedrl.errors import ConfigError
from seedrl.specs import ACTION_MASK, ActionSpec, ArraySpec, EnvSpec, TokensSpec, shown, shown_array

_MOST_CATEGORIES = 4096  # of all elements of one array: inputs of a dense layer
# Rows and columns of the smallest picture, of which an encoder's convolutions leave one.
SMALLEST_PICTURE = {"nature": 36, "impala": 1, "minatar": 3}
_LARGE = SMALLEST_PICTURE["nature"]
_FRAMES_OF_PICTURES = 4  # as R2D2 and DQN
_MOST_LINES = 8  # of a difference, which becomes the text of a gRPC status


class Meaning(NamedTuple):
    """What a network makes of one array.

    Attributes:
      kind: "dense" are numbers without a row of their own in the table.
      axes: rows and columns of a picture, else ().
      channels: of a picture, all its other axes together.
      is_scaled: whether it is scaled to 0 to 1, by `bounds_of`.
    """

    kind: Literal["one-hot", "picture", "dense"]
    axes: tuple[int, ...] = ()
    channels: int = 0
    is_scaled: bool = False


def meaning_of(spec: ArraySpec, torso: str) -> Meaning:
    """The row of the table for an array. `torso` is one of `SMALLEST_PICTURE`, or "mlp"."""
    if spec.is_categorical:
        return Meaning("one-hot")
    has_bounds = bool(bounds_of(spec)[0])  # without any there is nothing to scale by
    if torso != "mlp" and len(spec.shape) > 1:
        # Where the sizes do not tell, whoever has named a torso means channels last.
        axes = picture_axes(spec) or (0, 1)
        rows, columns = (spec.shape[axis] for axis in axes)
        # A small matrix of floats is a table of numbers, unless it is a normalized picture.
        is_table = len(spec.shape) == 2 and spec.dtype in ("float32", "float64")
        if min(rows, columns) >= (_LARGE if is_table else SMALLEST_PICTURE[torso]):
            channels = math.prod(spec.shape) // (rows * columns)
            return Meaning("picture", axes, channels, has_bounds)
    return Meaning("dense", is_scaled=has_bounds and "int" in spec.dtype)


def picture_axes(spec: ArraySpec) -> tuple[int, int] | None:
    """The axes of a picture's rows and columns; None if it is none, or its sizes do not tell.

    They are side by side. All other axes, before or after them, are channels: colours, or frames of
    a stack. So `[H, W]`, `[H, W, C]`, `[C, H, W]`, `[k, H, W, C]` are pictures of any dtype.
    """
    shape = spec.shape
    if spec.is_categorical or len(shape) < 2:
        return None
    told, squares = [], []
    for pair in zip(range(len(shape)), range(1, len(shape)), strict=False):
        smallest = min(shape[axis] for axis in pair)
        most_channels = max([1, *(size for axis, size in enumerate(shape) if axis not in pair)])
        # Fewer channels than rows and columns, and not so many that they may be rows themselves.
        if len(shape) == 2 or most_channels < min(smallest, _LARGE):
            told.append(pair)
        elif shape[pair[0]] == shape[pair[1]]:  # a square, next to many channels
            squares.append(pair)
    told = told or squares
    return told[0] if len(told) == 1 else None


def bounds_of(spec: ArraySpec) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Bounds as in `ArraySpec`, those of a uint8 included; two times () without."""
    if spec.dtype == "uint8" and not spec.low:
        return (0.0,), (255.0,)
    return spec.low, spec.high


def categories_of(spec: ArraySpec) -> np.ndarray:
    """`[E] int64`: how many categories each element of a categorical array has, in C order."""
    count = np.array(spec.high, np.int64) - np.array(spec.low, np.int64) + 1
    return np.broadcast_to(count, (math.prod(spec.shape),))


def view(spec: EnvSpec, torso: str, frame_stack: int | None) -> tuple[str, int]:
    """The torso and the frame stack of a network for observations of `spec`.

    A torso of "auto" and a frame stack of None follow the observation. Raises ConfigError for an
    array whose meaning cannot be told, or where a torso is named that convolves none of them.
    """
    for path, leaf in spec.leaves():
        _check_told(f"{shown(path)} {leaf.dtype}{list(leaf.shape)}", leaf, torso)

    def channels(torso: str) -> list[int]:
        meanings = [meaning_of(leaf, torso) for _, leaf in spec.leaves()]
        return [meaning.channels for meaning in meanings if meaning.kind == "picture"]

    if torso == "auto":
        torso = "nature" if channels("nature") else "mlp"
    if frame_stack is None:
        # Of gray or coloured frames; other channels are a stack already, or planes of a board.
        frame_stack = _FRAMES_OF_PICTURES if {1, 3}.intersection(channels(torso)) else 1
    if torso != "mlp" and not channels(torso):
        smallest = SMALLEST_PICTURE[torso]
        found = (f"{path} {leaf.dtype}{list(leaf.shape)}" for path, leaf in spec.leaves())
        raise ConfigError(
            f"network.torso {torso!r}: expected a picture of at least {smallest} x {smallest} (a "
            f"matrix of floats: {_LARGE} x {_LARGE}), got {', '.join(found)}; leave it at its "
            "default, which follows the observation"
        )
    return torso, frame_stack


def stacked_arrays(leaves: list[ArraySpec], torso: str) -> list[int]:
    """Positions of the arrays that a frame stack stacks: what is convolved or, if nothing is, all.

    Frames before an episode's first are zeros of the array as it arrives: for categories that is
    the category 0, for a normalized picture its mean.
    """
    pictures = [n for n, leaf in enumerate(leaves) if meaning_of(leaf, torso).kind == "picture"]
    return pictures or list(range(len(leaves)))


def describe(spec: EnvSpec, torso: str = "auto", frame_stack: int | None = None) -> str:
    """The observation in one line, as a network with these settings takes it, or why none does."""
    if isinstance(spec.action, TokensSpec):
        tokens = spec.action
        return f"observation: turns of up to {tokens.longest_turn} of {tokens.vocabulary} tokens"
    mask = f"; action mask of {spec.observation[ACTION_MASK].shape[0]}" if spec.has_mask else ""
    spec = spec.without_mask()  # networks do not see it
    try:
        torso, frame_stack = view(spec, torso, frame_stack)
    except ConfigError as error:
        return f"observation: refused: {error}"
    leaves = spec.leaves()
    stacked = stacked_arrays([leaf for _, leaf in leaves], torso) if frame_stack > 1 else []
    parts = []
    for number, (path, leaf) in enumerate(leaves):
        name = shown(path).removeprefix("observation").removeprefix(".")
        frames = f", {frame_stack} frames" if number in stacked else ""
        parts.append(f"{name}{': ' if name else ''}{_described(leaf, torso)}{frames}")
    return f"observation: {'; '.join(parts)}{mask}"


def _check_told(name: str, spec: ArraySpec, torso: str) -> None:
    if spec.is_categorical:
        if (total := categories_of(spec).sum()) > _MOST_CATEGORIES:
            raise ConfigError(
                f"{name}: expected at most {_MOST_CATEGORIES} categories, got {total}; declare "
                "quantities as a Box, or map the categories to vectors in a network of your own"
            )
        return
    is_large = len(spec.shape) > 2 and sorted(spec.shape)[-2] >= _LARGE
    if torso == "auto" and is_large and picture_axes(spec) is None:
        raise ConfigError(
            f"{name}: cannot tell rows, columns and channels of a picture by these sizes; set "
            'agent.network.torso ("mlp" flattens it, all others take it as rows, columns, '
            "channels), or reshape it"
        )


def _described(spec: ArraySpec, torso: str) -> str:
    meaning, size = meaning_of(spec, torso), math.prod(spec.shape)
    if spec.is_categorical:
        number = categories_of(spec).sum()
        what = f"one of {number}" if size == 1 else f"{number} categories over {size} elements"
        return f"{what}, one-hot"
    low, high = bounds_of(spec)
    is_byte = spec.dtype == "uint8" and not spec.low
    scaled = f", {min(low):g} to {max(high):g}" if meaning.is_scaled and not is_byte else ""
    if meaning.kind == "picture":
        rows, columns = (spec.shape[axis] for axis in meaning.axes)
        order = " (channels first)" if meaning.axes[0] else ""
        return f"picture {rows} x {columns} x {meaning.channels}{order}{scaled}, convolved"
    sizes = " x ".join(map(str, spec.shape)) or "1"
    return f"{sizes} {'number' if size == 1 else 'numbers'}{scaled}, dense"


def spec_difference(one: EnvSpec, other: EnvSpec) -> list[str]:
    """One line per field in which `other` differs from `one`; empty if networks see them alike.

    Bounds count where a network scales by them: of integers, and of arrays of rank 2 or more.
    Where one of the specs declares none of an array, any of the other's do.
    """
    mine, theirs = dict(one.leaves()), dict(other.leaves())
    lines = []
    for path in [*mine, *(path for path in theirs if path not in mine)]:
        here, there = mine.get(path), theirs.get(path)
        if not _fits(here, there):
            text = f"expected {shown_array(here)}, got {shown_array(there)}"
            lines.append(f"{shown(path)}: {text}")
    lines += _action_difference(one.action, other.action)
    if len(lines) > _MOST_LINES:
        lines[_MOST_LINES:] = [f"and {len(lines) - _MOST_LINES} more"]
    return lines


def _action_difference(one: ActionSpec, other: ActionSpec) -> list[str]:
    if type(one) is not type(other):
        return [f"action: expected {one!r:.60}, got {other!r:.60}"]
    return [
        f"action.{field.name}: expected {here!r:.60}, got {there!r:.60}"
        for field in dataclasses.fields(one)
        if field.compare
        and (here := getattr(one, field.name)) != (there := getattr(other, field.name))
    ]


def _fits(one: ArraySpec | None, other: ArraySpec | None) -> bool:
    if one is None or other is None:
        return one is other
    # An older checkpoint, or an env server in another language, need not declare bounds.
    has_both = one.low and other.low
    if has_both and ("int" in one.dtype or len(one.shape) > 1):
        return one == other
    return (one.shape, one.dtype) == (other.shape, other.dtype)
