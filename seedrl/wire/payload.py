"""Step and action payloads: arrays to the bytes that proto/seedrl/wire/seedrl.proto lays out.

E is the number of environments of a group, L the number of its rows that are LAST, M the number of
metrics that LAST rows carry. Every number is little-endian and every section is padded with zeros
to a multiple of 8 bytes. Steps are packed here, and actions read, of which those that the contract
rules out are refused. `seedrl.wire.learner_payload` is the learner's end.

Every message passes here, on both sides, and most are small: what is in order has to show in a few
operations on all of it, and in bytes, which are searched in a fraction of the time of `all`.
"""

import math
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from seedrl.specs import (
    ACTION_MASK,
    ActionSpec,
    ArraySpec,
    BoxSpec,
    EnvSpec,
    TokensSpec,
    shown_array,
)
from seedrl.types import TimeStep, Tree
from seedrl.wire.framing import FramedStep, WireError, frame_step

Buffer: TypeAlias = bytes | memoryview

HEADER = struct.Struct("<IIQ")
_NO_ENVS = bytes(4)  # where a header has its number of environments
_ALIGNMENT = 8
_LARGEST = float(np.finfo(np.float32).max)
# Of float64, what still becomes that; half a unit in the last place beyond, it becomes infinite.
_LARGEST_ROUNDED = float(np.nextafter(_LARGEST + 2.0**103, 0.0))
# The numbers of an observation that a learner can hold, by dtype; of others it can hold all. Its
# accelerator knows no 64-bit numbers.
_FITS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "float16": np.isfinite,
    "float32": np.isfinite,
    "float64": lambda leaf: np.abs(leaf) <= _LARGEST_ROUNDED,
    "int64": lambda leaf: (leaf >= -(2**31)) & (leaf < 2**31),
    "uint64": lambda leaf: leaf < 2**32,
}


def _legal(spec: ArraySpec) -> Callable[[np.ndarray], np.ndarray] | None:
    """Which numbers of `[E, *shape]` a learner can take; None if all that the dtype has."""
    if not spec.is_categorical:
        return _FITS.get(spec.dtype)
    # Another one would be no category at all: zeros in place of a one-hot vector.
    shape = spec.shape if len(spec.low) > 1 else ()
    low, high = (np.array(bound, np.int64).reshape(shape) for bound in (spec.low, spec.high))
    return lambda leaf: (leaf >= low) & (leaf <= high)


class ValueFaultError(WireError):
    """A number that a learner cannot take.

    Attributes:
      row: of the environment that gave it.
      is_absurd: True if it is finite, and only more than this learner's configuration allows.
    """

    def __init__(self, text: str, row: int, *, is_absurd: bool = False) -> None:
        super().__init__(text)
        self.row = row
        self.is_absurd = is_absurd


class StepHeader(NamedTuple):
    """First 16 bytes of a payload: the group, its number of environments, and the step's number."""

    group: int
    num_envs: int
    sequence: int


def read_header(data: Buffer) -> StepHeader:
    """The header of a payload. Raises WireError if `data` is too short for one."""
    if len(data) < HEADER.size:
        raise WireError(f"expected a payload of at least {HEADER.size} bytes, got {len(data)}")
    return StepHeader(*HEADER.unpack_from(data))


class Layout(Protocol):
    """Where everything lies in the payloads of a group."""

    def size(self, data: Buffer) -> int:
        """Length of the payload with which `data` begins."""


def split(data: Buffer, layouts: Sequence[Layout]) -> Iterator[tuple[int, Buffer]]:
    """The payloads of a message, one after another, each with the number of its group.

    `layouts` are those of the groups, by their numbers. Raises WireError if there is no such group
    or too few bytes for a header; that a payload has the right length is for its layout to check.
    """
    while True:
        group = read_header(data).group
        if group >= len(layouts):
            raise WireError(f"expected group < {len(layouts)}, got {group}")
        size = layouts[group].size(data)
        if len(data) <= size:
            yield group, data
            return
        view = memoryview(data)
        yield group, view[:size]
        data = view[size:]


def check_rewards(reward: np.ndarray, most: float = 0.0) -> None:
    """Raises ValueFaultError unless rewards `[E]` are finite as float32, and of -most to most.

    `most` is `environment.max_abs_reward`; 0 stands for no bound.
    """
    if reward.dtype.kind != "f" or reward.dtype.itemsize < 4:
        reward = reward.astype(np.float64)  # the bound may be beyond what it can hold
    bound = largest_reward(most)
    is_legal = np.abs(reward) <= bound  # also false for NaN
    if 0 not in is_legal.tobytes():
        return
    row = int(np.argmin(is_legal))
    raise ValueFaultError(
        f"expected a finite reward of {-bound:,.10g} to {bound:,.10g} "
        f"(environment.max_abs_reward), got "
        f"{reward[row]:g} at [{row}]",
        row,
        is_absurd=bool(abs(reward[row]) <= _LARGEST),
    )


class StepLayout:
    """Where everything lies in step payloads of `num_envs` environments of `spec`. Immutable."""

    def __init__(self, spec: EnvSpec, num_envs: int, num_metrics: int = 0) -> None:
        """`num_metrics` is M."""
        if num_envs < 1:
            raise ValueError(f"expected at least one environment in a group, got {num_envs}")
        self._num_envs = num_envs
        self._num_metrics = num_metrics
        self._sections = list(_sections(spec, num_envs))
        self._flatten: Callable[[Tree], Sequence[Any]] = spec.flatten
        if isinstance(spec.observation, ArraySpec):  # most: then there is no tree to walk through
            self._flatten = lambda leaf: (leaf,)
        self._checks = [
            (index, path, leaf, is_legal)
            for index, (path, leaf) in enumerate(spec.leaves())
            if (is_legal := _legal(leaf)) is not None
        ]
        self._has_mask = spec.has_mask
        self._tokens = spec.action if isinstance(spec.action, TokensSpec) else None
        last = self._sections[-1]
        # Of every such payload without a LAST row, or without metrics; and if every row is LAST.
        self.num_bytes = last.stop + len(last.padding)
        self.most_bytes = self.num_bytes + padded(4 * num_envs * num_metrics)

    def pack_framed(
        self, group: int, sequence: int, timestep: TimeStep, metrics: np.ndarray | None = None
    ) -> FramedStep:
        """The message with `timestep`, whose leaves are `[E, ...]` of exactly the spec's dtypes.

        `metrics [L, M] float32` are those of the rows that are LAST, NaN where there is none.

        `check_observation` looks at an environment's own.
        """
        observation = self._flatten(timestep.observation)
        leaves = [timestep.step_type, timestep.reward, timestep.discount, *observation]
        parts: list[bytes | memoryview] = [HEADER.pack(group, self._num_envs, sequence)]
        for section, leaf in zip(self._sections, leaves, strict=True):
            # A C-contiguous array's memory, whatever its dtype; anything else is copied here.
            parts.append(np.ascontiguousarray(leaf).data)
            if section.padding:
                parts.append(section.padding)
        num_bytes = self.num_bytes
        if self._num_metrics:
            assert metrics is not None and metrics.dtype == np.float32, "M > 0 takes metrics"
            own = np.ascontiguousarray(metrics, "<f4").tobytes()
            parts.append(own.ljust(padded(len(own)), b"\0"))
            num_bytes += len(parts[-1])
        return frame_step(num_bytes, parts)

    def check_observation(self, observation: Tree, discount: np.ndarray | None = None) -> None:
        """Raises WireError for leaves that are not `[E, *shape]` of the spec's dtypes.

        And ValueFaultError for numbers that whoever gets this observation would refuse. `discount
        [E] float32` is 0 where an episode has terminated: an action mask may forbid all actions
        there; None if none has.
        """
        leaves = self._flatten(observation)
        for section, leaf in zip(self._sections[3:], leaves, strict=True):
            if leaf.shape != section.shape or leaf.dtype != section.dtype:
                expected = f"{section.dtype}{list(section.shape)}"
                raise WireError(
                    f"expected {expected} for {section.path}, got {leaf.dtype}{list(leaf.shape)}"
                )
        self._check(leaves, observation, discount)

    def _check(self, leaves: Sequence[np.ndarray], tree: Tree, discount: np.ndarray | None) -> None:
        for index, path, spec, is_legal in self._checks:
            if 0 in is_legal(leaves[index]).tobytes():
                leaf = leaves[index]
                position = tuple(np.argwhere(~is_legal(leaf))[0].tolist())
                fitting = "finite numbers that fit into 32 bits"
                expected = shown_array(spec) if spec.is_categorical else fitting
                raise ValueFaultError(
                    f"expected {expected} in {path}, got {leaf[position]} at {list(position)}",
                    position[0],
                )
        if self._has_mask:
            _check_mask(tree[ACTION_MASK], discount)
        if self._tokens is not None:
            _check_turns(self._tokens, tree, discount)


class ActionLayout:
    """Where everything lies in action payloads for `num_envs` environments. Immutable."""

    def __init__(self, action: ActionSpec, num_envs: int) -> None:
        self._num_envs = num_envs
        self._section = section_of("actions", action.array, (num_envs,), HEADER.size)
        self._is_discrete, self._largest = not isinstance(action, BoxSpec), action.largest
        self.num_bytes = self._section.stop + len(self._section.padding)

    def size(self, data: Buffer) -> int:
        """Length of the payload with which `data` begins."""
        return HEADER.size if data[4:8] == _NO_ENVS else self.num_bytes

    def unpack(self, data: Buffer) -> tuple[StepHeader, np.ndarray | None]:
        """The header and the actions, `[E, ...]` as the spec has them, a read-only view.

        None in place of actions: the environments are to be reset.

        Raises WireError if the length or the number of environments differs, if padding is not
        zero, or if an action is not one of the spec: not 0 to n - 1, or not -1 to 1 within bounds.
        """
        header = read_header(data)
        if header.num_envs == 0 and len(data) == HEADER.size:
            return header, None
        if (header.num_envs, len(data)) != (self._num_envs, self.num_bytes):
            raise WireError(
                f"expected actions for {self._num_envs} environments in {self.num_bytes} bytes, "
                f"got them for {header.num_envs} in {len(data)}"
            )
        actions = read_section(memoryview(data).toreadonly(), self._section)
        if self._is_discrete:
            # As unsigned numbers, negative actions are large.
            is_legal = actions.view(np.uint32) <= self._largest
        else:
            is_legal = np.abs(actions) <= self._largest  # also false for NaN
        if 0 in is_legal.tobytes():
            position = np.argwhere(~is_legal)[0]
            largest = np.broadcast_to(self._largest, actions.shape)[tuple(position)]
            expected = f"{0 if self._is_discrete else -largest} to {largest}"
            raise WireError(
                f"expected actions {expected} for group {header.group}, got "
                f"{actions[tuple(position)]} for environment {position[0]}; check the agent's act"
            )
        return header, actions


class _Section(NamedTuple):
    """Where one array lies in a payload, and the zeros after it."""

    path: str
    dtype: np.dtype
    shape: tuple[int, ...]
    start: int
    stop: int
    padding: bytes


def _sections(spec: EnvSpec, num_envs: int) -> Iterator[_Section]:
    scalars = {"step_type": "uint8", "reward": "float32", "discount": "float32"}
    fields = [(path, ArraySpec((), dtype)) for path, dtype in scalars.items()]
    start = HEADER.size
    for path, leaf in [*fields, *spec.leaves()]:
        section = section_of(path, leaf, (num_envs,), start)
        yield section
        start = section.stop + len(section.padding)


def section_of(path: str, leaf: ArraySpec, rows: tuple[int, ...], start: int) -> _Section:
    """Where arrays `leaf` lie, one in each of `rows`, from byte `start` on."""
    dtype = np.dtype(leaf.dtype).newbyteorder("<")
    stop = start + math.prod(rows) * leaf.num_bytes
    return _Section(path, dtype, (*rows, *leaf.shape), start, stop, b"\0" * (-stop % _ALIGNMENT))


def read_section(data: memoryview, section: _Section) -> np.ndarray:
    """A view of it. Raises WireError for padding that is not zero or a bool that is not 0 or 1."""
    stop, padding = section.stop, section.padding
    if padding and data[stop : stop + len(padding)] != padding:
        raise WireError(f"expected zeros after {section.path}, got other padding")
    array: np.ndarray = np.ndarray(section.shape, section.dtype, data, section.start)
    if section.dtype == np.bool_ and array.view(np.uint8).max(initial=0) > 1:
        raise WireError(f"expected bools 0 or 1 in {section.path}, got another byte")
    return array


def _check_mask(mask: np.ndarray, discount: np.ndarray | None) -> None:
    has_legal = mask.any(axis=-1)
    if discount is not None:
        has_legal |= discount == 0
    if not has_legal.all():
        row = int(np.argmin(has_legal))
        path = f"observation.{ACTION_MASK}"
        raise ValueFaultError(f"expected an action that may be taken in {path}, got none", row)


def _check_turns(tokens: TokensSpec, rows: np.ndarray, discount: np.ndarray | None) -> None:
    from seedrl.turns import illegal_turns  # here: most runs have no turns

    is_empty = rows[:, 1] == 0
    if discount is not None:
        is_empty &= discount != 0
    is_illegal = illegal_turns(tokens, rows) | is_empty
    if is_illegal.any():
        row = int(np.argmax(is_illegal))
        raise ValueFaultError(
            f"expected 1 to {tokens.longest_turn} ids of 0 to {tokens.vocabulary - 1} in "
            f"observation, got {rows[row][1]} ids, the largest {rows[row][2:].max()}",
            row,
        )


def largest_reward(most: float) -> float:
    """The largest reward that passes, either way; `most` is 0 for no bound."""
    return min(most or _LARGEST, _LARGEST)


def padded(size: int) -> int:
    """Length of a section of `size` bytes with its padding."""
    return size + -size % _ALIGNMENT
