"""Which numbers of a step a learner takes: rewards and observations, each group at once.

Every message passes here, on both sides, and most are small: what is in order has to show in a few
operations on all of it, and in bytes, which are searched in a fraction of the time of `all`.
"""

from collections.abc import Callable

import numpy as np

from seedrl.wire.framing import WireError

_LARGEST = float(np.finfo(np.float32).max)
# Of float64, what still becomes that; half a unit in the last place beyond, it becomes infinite.
_LARGEST_ROUNDED = float(np.nextafter(_LARGEST + 2.0**103, 0.0))


class ValueFaultError(WireError):
    """A number that a learner cannot take.

    Attributes:
      row: of the environment that gave it.
      is_absurd: whether it is finite, and only more than this learner's configuration allows.
    """

    def __init__(self, text: str, row: int, *, is_absurd: bool = False) -> None:
        super().__init__(text)
        self.row = row
        self.is_absurd = is_absurd


def largest_reward(most: float) -> float:
    """The bound of rewards; `most` is `environment.max_abs_reward`, 0 for what float32 can hold."""
    return min(most or _LARGEST, _LARGEST)


def check_rewards(reward: np.ndarray, most: float = 0.0) -> None:
    """Raises ValueFaultError unless rewards `[E]` are finite as float32, and of -most to most.

    `most` is `environment.max_abs_reward`; 0 stands for no bound.
    """
    if reward.dtype.kind != "f" or reward.dtype.itemsize < 4:
        reward = reward.astype(np.float64)  # the bound may be beyond what it can hold
    bound = largest_reward(most)
    fits = np.abs(reward) <= bound
    if 0 not in fits.tobytes():
        return
    check_finite("reward", reward)
    row = int(np.argmin(fits))
    raise ValueFaultError(
        f"expected a reward of {-bound:g} to {bound:g} (environment.max_abs_reward), got "
        f"{reward[row]:g} at [{row}]",
        row,
        is_absurd=abs(reward[row]) <= _LARGEST,
    )


def check_finite(path: str, leaf: np.ndarray) -> None:
    """Raises ValueFaultError, naming `path`, unless all numbers are finite."""
    is_finite = np.isfinite(leaf)
    if 0 in is_finite.tobytes():
        position = _first_wrong(is_finite)
        raise ValueFaultError(
            f"expected finite numbers in {path}, got {leaf[position]} at {list(position)}",
            position[0] if position else 0,
        )


def _check_float64(path: str, leaf: np.ndarray) -> None:
    fits = np.abs(leaf) <= _LARGEST_ROUNDED
    if 0 in fits.tobytes():
        check_finite(path, leaf)
        _refuse_large(path, leaf, fits, "float32")


def _check_int64(path: str, leaf: np.ndarray) -> None:
    if leaf.min() < -(2**31) or leaf.max() >= 2**31:
        _refuse_large(path, leaf, leaf == leaf.astype(np.int32), "int32")


def _check_uint64(path: str, leaf: np.ndarray) -> None:
    if leaf.max() >= 2**32:
        _refuse_large(path, leaf, leaf == leaf.astype(np.uint32), "uint32")


def _refuse_large(path: str, leaf: np.ndarray, fits: np.ndarray, dtype: str) -> None:
    position = _first_wrong(fits)
    raise ValueFaultError(
        f"expected numbers that fit into {dtype}, which learners compute with, in {path}, got "
        f"{leaf[position]} at {list(position)}",
        position[0] if position else 0,
    )


def _first_wrong(fits: np.ndarray) -> tuple[int, ...]:
    return tuple(np.argwhere(~fits)[0].tolist())


# Of observations, by dtype; those that are missing need none. What a learner cannot take it must
# not get: its accelerator knows no 64-bit numbers. The first axis is that of environments.
OBSERVATION_CHECKS: dict[str, Callable[[str, np.ndarray], None]] = {
    "float16": check_finite,
    "float32": check_finite,
    "float64": _check_float64,
    "int64": _check_int64,
    "uint64": _check_uint64,
}
