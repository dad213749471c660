"""The learner's end of `seedrl.wire.payload`: steps to arrays, actions to bytes.

An env server never loads this. What the contract rules out is refused as a step is read.
"""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from seedrl.specs import ArraySpec, EnvSpec
from seedrl.types import NEXT, StepType, TimeStep, Tree
from seedrl.wire.framing import WireError
from seedrl.wire.payload import (
    HEADER,
    Buffer,
    StepLayout,
    check_rewards,
    largest_reward,
    padded,
    read_section,
    section_of,
)

_STEP_TYPES = bytes(StepType)
_FIRST, _LAST = StepType.FIRST.value, StepType.LAST.value
_ONE = np.ones((), "<f4").tobytes()
_FLOATS = np.dtype("<f4")
# Actions of an agent, in the machine's byte order, and as they are sent.
_ACTION_DTYPES = {np.dtype(np.int32): np.dtype("<i4"), np.dtype(np.float32): _FLOATS}


def sequence_of(data: Buffer) -> int:
    """The number of the step in a payload that `split` gave."""
    return int(HEADER.unpack_from(data)[2])


class StepReader(StepLayout):
    """Reads step payloads of `num_envs` environments of `spec`. Immutable."""

    def __init__(
        self, spec: EnvSpec, num_envs: int, num_metrics: int = 0, max_abs_reward: float = 0.0
    ) -> None:
        """`num_metrics` is M; `max_abs_reward` bounds rewards, 0 for no bound."""
        super().__init__(spec, num_envs, num_metrics)
        self._largest_reward = largest_reward(max_abs_reward)
        self._step_types = _STEP_TYPES if self._tokens is None else bytes([*_STEP_TYPES, NEXT])
        # Most observations are one array: then there is no tree to build.
        is_array = isinstance(spec.observation, ArraySpec)
        self._unflatten: Callable[[list[Any]], Tree] = (
            operator.itemgetter(0) if is_array else spec.unflatten
        )

    def size(self, data: Buffer) -> int:
        """Length of the payload with which `data` begins."""
        if not self._num_metrics:
            return self.num_bytes
        # Only rows that end an episode carry metrics.
        return self.num_bytes + padded(4 * self._num_last(data) * self._num_metrics)

    def metrics(self, data: Buffer) -> np.ndarray:
        """The metrics `[L, M] float32` in a payload that `unpack` has accepted.

        Raises WireError for an infinite one, or if padding is not zero.
        """
        shape = (self._num_last(data), self._num_metrics)
        section = section_of("metrics", ArraySpec((), "float32"), shape, self.num_bytes)
        # Read-only: gRPC's memory must not be written to.
        metrics = read_section(memoryview(data).toreadonly(), section)
        if np.isinf(metrics).any():
            raise WireError("expected finite metrics, or NaN for none; got infinity")
        return metrics

    def unpack(self, data: Buffer) -> TimeStep:
        """The time step in `data`: read-only, maybe unaligned, views of it with leaves `[E, ...]`.

        Raises WireError, naming the field, if the length or the number of environments differs, if
        padding is not zero, or if a value is ruled out: an unknown step type; a reward
        not finite, beyond `max_abs_reward`, or not 0 on FIRST; a discount not 1, nor 0 on LAST; an
        observation with NaN, infinity, a number that float32 (or int32, uint32) cannot hold, or a
        category that its spec does not have; a bool not 0 or 1; an action mask that forbids all
        actions where no episode has terminated; a turn that is too long, has an id out of range, or
        none where no episode has terminated.
        """
        if len(data) != (size := self.size(data)):
            raise WireError(f"expected a step payload of {size} bytes, got {len(data)}")
        _, num_envs, _ = HEADER.unpack_from(data)
        if num_envs != self._num_envs:
            raise WireError(f"expected a step of {self._num_envs} environments, got {num_envs}")
        view = memoryview(data).toreadonly()
        leaves = [read_section(view, section) for section in self._sections]
        step_type, reward, discount, *observation = leaves
        _check_steps(step_type, reward, discount, self._largest_reward, self._step_types)
        tree = self._unflatten(observation)
        self._check(observation, tree, discount)
        return TimeStep(step_type, reward, discount, tree)

    def _num_last(self, data: Buffer) -> int:
        kinds = bytes(data[HEADER.size : HEADER.size + self._num_envs])
        return kinds.count(_LAST) + kinds.count(NEXT)


def pack_actions(
    group: int, sequence: int, actions: np.ndarray, largest: float | np.ndarray = 1.0
) -> bytes:
    """The payload of actions that answer step `sequence` of `group`.

    `actions` are `[E] int32`, `[E, *shape] int32` or `[E, *shape] float32`; of the latter what lies
    beyond the spec's `largest` is sent as the nearest, so that an agent may explore with unbounded
    noise.
    """
    # Every answer passes here: comparing dtypes takes a fraction of the time that their names take.
    dtype = _ACTION_DTYPES.get(actions.dtype)
    assert actions.ndim and dtype is not None, actions.dtype
    if dtype is _FLOATS:
        actions = np.clip(actions, -largest, largest)
    padding = bytes(padded(actions.nbytes) - actions.nbytes)
    header = HEADER.pack(group, len(actions), sequence)
    return b"".join((header, actions.astype(dtype, copy=False).tobytes(), padding))


def pack_reset(group: int, sequence: int) -> bytes:
    """The payload that answers step `sequence` of `group` by resetting all of its environments."""
    return HEADER.pack(group, 0, sequence)


def _check_steps(
    step_type: np.ndarray, reward: np.ndarray, discount: np.ndarray, largest: float, known: bytes
) -> None:
    kinds = step_type.tobytes()
    if unknown := kinds.translate(None, known):
        raise WireError(f"expected step_type 0 to {known[-1]}, got {unknown[0]}")
    if 0 in (np.abs(reward) <= largest).tobytes():  # seldom: the words cost time
        check_rewards(reward, largest)
    if _FIRST in kinds and reward[step_type == _FIRST].any():
        raise WireError("expected reward 0 on FIRST, got another")
    if discount.tobytes() == _ONE * len(discount):
        return
    is_terminated = (discount == 0) & (step_type == _LAST)
    if not ((discount == 1) | is_terminated).all():
        raise WireError("expected discount 1, or 0 on LAST; got another, or 0 on FIRST or MID")
