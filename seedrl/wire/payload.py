"""Step and action payloads: arrays to the bytes that proto/seedrl/wire/seedrl.proto lays out.

E is the number of environments of a group, L the number of its rows that are LAST, M the number of
metrics that LAST rows carry. Every number is little-endian and every section is padded with zeros
to a multiple of 8 bytes.
"""

import math
import operator
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np

from seedrl.specs import ActionSpec, ArraySpec, DiscreteSpec, EnvSpec
from seedrl.types import StepType, TimeStep
from seedrl.wire.framing import FramedStep, WireError, frame_step
from seedrl.wire.value_checks import OBSERVATION_CHECKS, check_steps

Buffer: TypeAlias = bytes | bytearray | memoryview

_HEADER = struct.Struct("<IIQ")
_ALIGNMENT = 8


class StepHeader(NamedTuple):
    """First 16 bytes of a payload: the group, its number of environments, and the step's number."""

    group: int
    num_envs: int
    sequence: int


class _Section(NamedTuple):
    path: str
    dtype: np.dtype
    shape: tuple[int, ...]
    start: int
    stop: int
    padding: bytes


def read_header(data: Buffer) -> StepHeader:
    """The header of a step or actions payload. Raises WireError if `data` is too short for one."""
    _check_length(data)
    return StepHeader(*_HEADER.unpack_from(data))


def _check_length(data: Buffer) -> None:
    if len(data) < _HEADER.size:
        raise WireError(f"expected a payload of at least {_HEADER.size} bytes, got {len(data)}")


class Layout(Protocol):
    """Payloads of one group."""

    def size(self, data: Buffer) -> int:
        """Bytes of the payload with which `data` begins, if it is one of this group."""
        ...


def sequence_of(data: Buffer) -> int:
    """The number of the step in a payload that `split` gave."""
    return int(_HEADER.unpack_from(data)[2])


def split(data: Buffer, layouts: Sequence[Layout]) -> Iterator[tuple[int, Buffer]]:
    """The payloads of a message, one after another, each with the number of its group.

    `layouts` are those of the groups, by their numbers. Raises WireError if there is no such group
    or too few bytes for a header; that a payload has the right length is for its layout to check.
    """
    while True:
        _check_length(data)
        group = _HEADER.unpack_from(data)[0]
        if group >= len(layouts):
            raise WireError(f"expected group < {len(layouts)}, got {group}")
        size = layouts[group].size(data)
        if len(data) <= size:
            yield group, data
            return
        view = memoryview(data)
        yield group, view[:size]
        data = view[size:]


class StepLayout:
    """Where everything lies in step payloads of `num_envs` environments of `spec`. Immutable."""

    def __init__(self, spec: EnvSpec, num_envs: int, num_metrics: int = 0) -> None:
        """`num_metrics` is M."""
        if num_envs < 1:
            raise ValueError(f"expected at least one environment in a group, got {num_envs}")
        self._spec = spec
        self._num_envs = num_envs
        self._num_metrics = num_metrics
        self._sections = list(_sections(spec, num_envs))
        # Most observations are one array: then there is no tree to build.
        is_array = isinstance(spec.observation, ArraySpec)
        self._unflatten = operator.itemgetter(0) if is_array else spec.unflatten
        # Checks of observations by their positions: bytes and short integers need none.
        self._checks = [
            (index, section.path, OBSERVATION_CHECKS[section.dtype.name])
            for index, section in enumerate(self._sections[3:])
            if section.dtype.name in OBSERVATION_CHECKS
        ]
        last = self._sections[-1]
        self._num_bytes = last.stop + len(last.padding)

    @property
    def num_bytes(self) -> int:
        """Length of every such payload without a LAST row, or without metrics."""
        return self._num_bytes

    def size(self, data: Buffer) -> int:
        """Length of the payload with which `data` begins."""
        if not self._num_metrics:
            return self._num_bytes
        num_last = bytes(data[_HEADER.size : _HEADER.size + self._num_envs]).count(StepType.LAST)
        return self._num_bytes + _padded(4 * num_last * self._num_metrics)

    def pack(
        self, group: int, sequence: int, timestep: TimeStep, metrics: np.ndarray | None = None
    ) -> bytes:
        """The payload of `timestep`, whose leaves are `[E, ...]` of exactly the spec's dtypes.

        `metrics [L, M] float32` are those of the rows that are LAST, NaN where there is none.

        Raises WireError if a leaf has another shape or dtype. Values are not looked at: the side
        that receives them does.
        """
        return b"".join(self._parts(group, sequence, timestep, metrics))

    def pack_framed(
        self, group: int, sequence: int, timestep: TimeStep, metrics: np.ndarray | None = None
    ) -> FramedStep:
        """Like `pack`, but the whole message for the stream, saving a copy of the payload."""
        parts = self._parts(group, sequence, timestep, metrics)
        num_metric_bytes = 0 if metrics is None else _padded(metrics.nbytes)
        return frame_step(self._num_bytes + num_metric_bytes, parts)

    def metrics(self, data: Buffer) -> np.ndarray:
        """The metrics `[L, M] float32` in a payload that `unpack` has accepted.

        Raises WireError for an infinite one, or if padding is not zero.
        """
        num_last = bytes(data[_HEADER.size : _HEADER.size + self._num_envs]).count(StepType.LAST)
        shape = (num_last, self._num_metrics)
        section = _section("metrics", ArraySpec((), "float32"), shape, self._num_bytes)
        metrics = _read(memoryview(data).toreadonly(), section)
        if np.isinf(metrics).any():
            raise WireError("expected finite metrics, or NaN for none; got infinity")
        return metrics

    def unpack(self, data: Buffer) -> TimeStep:
        """The time step in `data`: read-only, maybe unaligned, views of it with leaves `[E, ...]`.

        Raises WireError, naming the field, if the length or the number of environments differs, if
        padding is not zero, or if a value is one that the contract rules out: a step type other
        than 0, 1, 2; a reward that is not finite, or not 0 on FIRST; a discount that is not 1, nor
        0 on LAST; an observation with NaN, infinity, or a number that float32 (or int32, or
        uint32) cannot hold; a bool other than 0 and 1.
        """
        if len(data) != (size := self.size(data)):
            raise WireError(f"expected a step payload of {size} bytes, got {len(data)} bytes")
        _, num_envs, _ = _HEADER.unpack_from(data)
        if num_envs != self._num_envs:
            raise WireError(f"expected a step of {self._num_envs} environments, got {num_envs}")
        view = memoryview(data).toreadonly()
        leaves = [_read(view, section) for section in self._sections]
        step_type, reward, discount, *observation = leaves
        check_steps(step_type, reward, discount)
        for index, path, check in self._checks:
            check(path, observation[index])
        return TimeStep(step_type, reward, discount, self._unflatten(observation))

    def _parts(
        self, group: int, sequence: int, timestep: TimeStep, metrics: np.ndarray | None
    ) -> list[bytes | memoryview]:
        observation = self._spec.flatten(timestep.observation)
        leaves = [timestep.step_type, timestep.reward, timestep.discount, *observation]
        parts: list[bytes | memoryview] = [_HEADER.pack(group, self._num_envs, sequence)]
        for section, leaf in zip(self._sections, leaves, strict=True):
            if leaf.shape != section.shape or leaf.dtype != section.dtype:
                expected = f"{section.dtype}{list(section.shape)}"
                raise WireError(
                    f"expected {expected} for {section.path}, got {leaf.dtype}{list(leaf.shape)}"
                )
            # A C-contiguous array's memory, whatever its dtype; anything else is copied here.
            parts.append(np.ascontiguousarray(leaf).data)
            if section.padding:
                parts.append(section.padding)
        if self._num_metrics:
            assert metrics is not None and metrics.dtype == np.float32, "M > 0 takes metrics"
            parts.append(np.ascontiguousarray(metrics, "<f4").tobytes())
            parts.append(b"\0" * (-metrics.nbytes % _ALIGNMENT))
        return parts


_FLOATS = np.dtype("<f4")
# Those of an agent, in the machine's byte order, and as they are sent.
_ACTION_DTYPES = {np.dtype(np.int32): np.dtype("<i4"), np.dtype(np.float32): _FLOATS}


def pack_actions(group: int, sequence: int, actions: np.ndarray) -> bytes:
    """The payload of actions that answer step `sequence` of `group`.

    `actions` are `[E] int32`, or `[E, *shape] float32`; of the latter what lies beyond -1 and 1 is
    sent as the nearest of these, so that an agent may explore with unbounded noise.
    """
    # Every answer passes here: comparing dtypes takes a fraction of the time that their names take.
    dtype = _ACTION_DTYPES.get(actions.dtype)
    assert actions.ndim and dtype is not None, actions.dtype
    if dtype is _FLOATS:
        actions = np.clip(actions, -1.0, 1.0)
    padding = b"\0" * (-actions.nbytes % _ALIGNMENT)
    header = _HEADER.pack(group, len(actions), sequence)
    return b"".join((header, actions.astype(dtype, copy=False).tobytes(), padding))


class ActionLayout:
    """Where everything lies in action payloads for `num_envs` environments. Immutable."""

    def __init__(self, action: ActionSpec, num_envs: int) -> None:
        self._num_envs = num_envs
        self._section = _section("actions", action.array, (num_envs,), _HEADER.size)
        # As unsigned numbers, negative actions are large.
        self._num_actions = action.num_actions if isinstance(action, DiscreteSpec) else 0
        self.num_bytes = self._section.stop + len(self._section.padding)

    def size(self, data: Buffer) -> int:
        """Length of every such payload."""
        return self.num_bytes

    def unpack(self, data: Buffer) -> tuple[StepHeader, np.ndarray]:
        """The header and the actions, `[E] int32` or `[E, *shape] float32`, a read-only view.

        Raises WireError if the length or the number of environments differs, if padding is not
        zero, or if an action is not one of the spec: not 0 to n - 1, or not -1 to 1.
        """
        header = read_header(data)
        if header.num_envs != self._num_envs:
            raise WireError(
                f"expected actions for {self._num_envs} environments, got {header.num_envs}"
            )
        if len(data) != self.num_bytes:
            raise WireError(
                f"expected an actions payload of {self.num_bytes} bytes, got {len(data)}"
            )
        actions = _read(memoryview(data).toreadonly(), self._section)
        self._check(header.group, actions)
        return header, actions

    def _check(self, group: int, actions: np.ndarray) -> None:
        if self._num_actions:
            is_legal = actions.view(np.uint32) < self._num_actions
            expected = f"0 to {self._num_actions - 1}"
        else:
            is_legal = np.abs(actions) <= 1.0  # also false for NaN
            expected = "-1 to 1"
        # Bytes again, as in the checks of a step: a fraction of the time of `all`.
        if 0 in is_legal.tobytes():
            position = np.argwhere(~is_legal)[0]
            raise WireError(
                f"expected actions {expected} for group {group}, got {actions[tuple(position)]} "
                f"for environment {position[0]}"
            )


def _sections(spec: EnvSpec, num_envs: int) -> Iterator[_Section]:
    scalars = {"step_type": "uint8", "reward": "float32", "discount": "float32"}
    fields = [(path, ArraySpec((), dtype)) for path, dtype in scalars.items()]
    start = _HEADER.size
    for path, leaf in [*fields, *spec.leaves()]:
        section = _section(path, leaf, (num_envs,), start)
        yield section
        start = section.stop + len(section.padding)


def _section(path: str, leaf: ArraySpec, rows: tuple[int, ...], start: int) -> _Section:
    dtype = np.dtype(leaf.dtype).newbyteorder("<")
    stop = start + math.prod(rows) * leaf.num_bytes
    return _Section(path, dtype, (*rows, *leaf.shape), start, stop, b"\0" * (-stop % _ALIGNMENT))


def _padded(size: int) -> int:
    return size + -size % _ALIGNMENT


def _read(data: memoryview, section: _Section) -> np.ndarray:
    if (
        section.padding
        and data[section.stop : section.stop + len(section.padding)] != section.padding
    ):
        raise WireError(f"expected zeros after {section.path}, got other padding")
    array: np.ndarray = np.ndarray(section.shape, section.dtype, data, section.start)
    if section.dtype == np.bool_ and array.view(np.uint8).max(initial=0) > 1:
        raise WireError(f"expected bools 0 or 1 in {section.path}, got another byte")
    return array
