"""Step and action payloads: arrays to the bytes that proto/seedrl/wire/seedrl.proto lays out.

E is the number of environments of a group. Every number is little-endian and every section is
padded with zeros to a multiple of 8 bytes.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

import numpy as np

from seedrl.specs import ArraySpec, EnvSpec
from seedrl.types import StepType, TimeStep
from seedrl.wire.framing import FramedStep, WireError, frame_step

Buffer: TypeAlias = bytes | bytearray | memoryview

_HEADER = struct.Struct("<IIQ")
_ALIGNMENT = 8
_ACTION = np.dtype("<i4")
_STEP_TYPES = bytes(StepType)
_ONE = np.ones((), "<f4").tobytes()


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
    if len(data) < _HEADER.size:
        raise WireError(f"expected a payload of at least {_HEADER.size} bytes, got {len(data)}")
    return StepHeader(*_HEADER.unpack_from(data))


class StepLayout:
    """Where everything lies in step payloads of `num_envs` environments of `spec`. Immutable."""

    def __init__(self, spec: EnvSpec, num_envs: int) -> None:
        if num_envs < 1:
            raise ValueError(f"expected at least one environment in a group, got {num_envs}")
        self._spec = spec
        self._num_envs = num_envs
        self._sections = list(_sections(spec, num_envs))
        last = self._sections[-1]
        self._num_bytes = last.stop + len(last.padding)

    @property
    def num_bytes(self) -> int:
        """Length of every such payload."""
        return self._num_bytes

    def pack(self, group: int, sequence: int, timestep: TimeStep) -> bytes:
        """The payload of `timestep`, whose leaves are `[E, ...]` of exactly the spec's dtypes.

        Raises WireError if a leaf has another shape or dtype. Values are not looked at: the side
        that receives them does.
        """
        return b"".join(self._parts(group, sequence, timestep))

    def pack_framed(self, group: int, sequence: int, timestep: TimeStep) -> FramedStep:
        """Like `pack`, but the whole message for the stream, saving a copy of the payload."""
        return frame_step(self._num_bytes, self._parts(group, sequence, timestep))

    def unpack(self, data: Buffer) -> TimeStep:
        """The time step in `data`: read-only, maybe unaligned, views of it with leaves `[E, ...]`.

        Raises WireError, naming the field, if the length or the number of environments differs, if
        padding is not zero, or if a value is one that the contract rules out: a step type other
        than 0, 1, 2; a reward that is not finite, or not 0 on FIRST; a discount that is not 1, nor
        0 on LAST; an observation with NaN or infinity; a bool other than 0 and 1.
        """
        if len(data) != self._num_bytes:
            raise WireError(
                f"expected a step payload of {self._num_bytes} bytes, got {len(data)} bytes"
            )
        num_envs = read_header(data).num_envs
        if num_envs != self._num_envs:
            raise WireError(f"expected a step of {self._num_envs} environments, got {num_envs}")
        view = memoryview(data).toreadonly()
        leaves = [_read(view, section) for section in self._sections]
        step_type, reward, discount, *observation = leaves
        _check_steps(step_type, reward, discount)
        for section, leaf in zip(self._sections[3:], observation, strict=True):
            if leaf.dtype.kind == "f":
                _check_finite(section.path, leaf)
        return TimeStep(step_type, reward, discount, self._spec.unflatten(observation))

    def _parts(self, group: int, sequence: int, timestep: TimeStep) -> list[bytes | memoryview]:
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
        return parts


def pack_actions(group: int, sequence: int, actions: np.ndarray) -> bytes:
    """The payload of `actions [E] int32`, which answer step `sequence` of `group`."""
    assert actions.ndim == 1 and actions.dtype == np.int32, (actions.shape, actions.dtype)
    padding = b"\0" * (-actions.nbytes % _ALIGNMENT)
    header = _HEADER.pack(group, len(actions), sequence)
    return b"".join((header, actions.astype(_ACTION, copy=False).tobytes(), padding))


def unpack_actions(data: Buffer, num_envs: int) -> tuple[StepHeader, np.ndarray]:
    """The header and the actions `[E] int32` (a read-only view) of a payload for `num_envs`.

    Raises WireError if the length or number of environments differs, or if padding is not zero. The
    values are for the caller to check: only it knows the number of actions.
    """
    header = read_header(data)
    if header.num_envs != num_envs:
        raise WireError(f"expected actions for {num_envs} environments, got {header.num_envs}")
    stop = _HEADER.size + _ACTION.itemsize * num_envs
    section = _Section(
        "actions", _ACTION, (num_envs,), _HEADER.size, stop, b"\0" * (-stop % _ALIGNMENT)
    )
    if len(data) != stop + len(section.padding):
        raise WireError(
            f"expected an actions payload of {stop + len(section.padding)} bytes, got {len(data)}"
        )
    return header, _read(memoryview(data).toreadonly(), section)


def _sections(spec: EnvSpec, num_envs: int) -> Iterator[_Section]:
    scalars = {"step_type": "uint8", "reward": "float32", "discount": "float32"}
    fields = [(path, ArraySpec((), dtype)) for path, dtype in scalars.items()]
    start = _HEADER.size
    for path, leaf in [*fields, *spec.leaves()]:
        dtype = np.dtype(leaf.dtype).newbyteorder("<")
        size = num_envs * leaf.num_bytes
        padding = b"\0" * (-size % _ALIGNMENT)
        yield _Section(path, dtype, (num_envs, *leaf.shape), start, start + size, padding)
        start += size + len(padding)


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


def _check_steps(step_type: np.ndarray, reward: np.ndarray, discount: np.ndarray) -> None:
    # Every message passes here, most of them small: work on bytes is cheaper than array operations.
    kinds = step_type.tobytes()
    if unknown := kinds.translate(None, _STEP_TYPES):
        raise WireError(f"expected step_type 0, 1 or 2, got {unknown[0]}")
    _check_finite("reward", reward)
    if StepType.FIRST in kinds and reward[step_type == StepType.FIRST.value].any():
        raise WireError("expected reward 0 on FIRST, got another")
    if discount.tobytes() == _ONE * len(discount):
        return
    is_terminated = (discount == 0) & (step_type == StepType.LAST.value)
    if not ((discount == 1) | is_terminated).all():
        raise WireError("expected discount 1, or 0 on LAST; got another, or 0 on FIRST or MID")


def _check_finite(path: str, leaf: np.ndarray) -> None:
    is_finite = np.isfinite(leaf)
    if 0 in is_finite.tobytes():
        position = tuple(np.argwhere(~is_finite)[0].tolist())
        raise WireError(
            f"expected finite numbers in {path}, got {leaf[position]} at {list(position)}"
        )
