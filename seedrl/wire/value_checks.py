"""What the contract rules out in the values of a step; each check raises WireError."""

from collections.abc import Callable

import numpy as np

from seedrl.types import StepType
from seedrl.wire.framing import WireError

_STEP_TYPES = bytes(StepType)
_FIRST, _LAST = StepType.FIRST.value, StepType.LAST.value
_ONE = np.ones((), "<f4").tobytes()


def check_steps(step_type: np.ndarray, reward: np.ndarray, discount: np.ndarray) -> None:
    """Of `[E]` step types, rewards and discounts."""
    # Every message passes here, most of them small: work on bytes is cheaper than array operations.
    kinds = step_type.tobytes()
    if unknown := kinds.translate(None, _STEP_TYPES):
        raise WireError(f"expected step_type 0, 1 or 2, got {unknown[0]}")
    _check_finite("reward", reward)
    if _FIRST in kinds and reward[step_type == _FIRST].any():
        raise WireError("expected reward 0 on FIRST, got another")
    if discount.tobytes() == _ONE * len(discount):
        return
    is_terminated = (discount == 0) & (step_type == _LAST)
    if not ((discount == 1) | is_terminated).all():
        raise WireError("expected discount 1, or 0 on LAST; got another, or 0 on FIRST or MID")


def _check_finite(path: str, leaf: np.ndarray) -> None:
    is_finite = np.isfinite(leaf)
    if 0 in is_finite.tobytes():
        position = tuple(np.argwhere(~is_finite)[0].tolist())
        raise WireError(
            f"expected finite numbers in {path}, got {leaf[position]} at {list(position)}"
        )


def _check_float64(path: str, leaf: np.ndarray) -> None:
    with np.errstate(over="ignore"):
        fits = np.isfinite(leaf.astype(np.float32))
    if not fits.all():
        _check_finite(path, leaf)
        _refuse_large(path, leaf, fits, "float32")


def _check_int64(path: str, leaf: np.ndarray) -> None:
    if leaf.min() < -(2**31) or leaf.max() >= 2**31:
        _refuse_large(path, leaf, leaf == leaf.astype(np.int32), "int32")


def _check_uint64(path: str, leaf: np.ndarray) -> None:
    if leaf.max() >= 2**32:
        _refuse_large(path, leaf, leaf == leaf.astype(np.uint32), "uint32")


def _refuse_large(path: str, leaf: np.ndarray, fits: np.ndarray, dtype: str) -> None:
    position = tuple(np.argwhere(~fits)[0].tolist())
    raise WireError(
        f"expected numbers that fit into {dtype}, which learners compute with, in {path}, got "
        f"{leaf[position]} at {list(position)}"
    )


# By dtype; those that are missing need none. What a learner cannot take it must not get: its
# accelerator knows no 64-bit numbers.
OBSERVATION_CHECKS: dict[str, Callable[[str, np.ndarray], None]] = {
    "float16": _check_finite,
    "float32": _check_finite,
    "float64": _check_float64,
    "int64": _check_int64,
    "uint64": _check_uint64,
}
