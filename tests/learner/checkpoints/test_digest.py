import numpy as np
import pytest

from learner.checkpoints.digest import digests
from seedrl.errors import CheckpointError

ARRAYS = {
    "params/core/kernel": np.arange(6, dtype=np.float32).reshape(2, 3),
    "params/core/bias": np.zeros(3, np.float32),
    "key": np.array([1, 2], np.uint32),
    "replay.mass": np.ones(4, np.float32),
}


def _changed(name: str, array: np.ndarray) -> set[str]:
    """The parts whose digest another array changes."""
    before, after = digests(ARRAYS), digests({**ARRAYS, name: array})
    return {part for part in after if before.get(part) != after[part]}


def test_every_part_has_its_digest_and_equal_arrays_have_equal_ones() -> None:
    copies = {name: array.copy() for name, array in reversed(ARRAYS.items())}
    assert digests(copies) == digests(ARRAYS)
    assert list(digests(ARRAYS)) == ["params", "key", "replay", "all"]
    assert len(set(digests(ARRAYS).values())) == 4


@pytest.mark.parametrize(
    ("name", "array", "part"),
    [
        ("params/core/bias", np.array([0, 0, 1e-45], np.float32), "params"),  # one bit
        ("params/core/bias", np.array([0, 0, -0.0], np.float32), "params"),
        ("params/core/kernel", ARRAYS["params/core/kernel"].reshape(3, 2), "params"),
        ("params/core/kernel", ARRAYS["params/core/kernel"].T, "params"),
        ("key", np.array([1, 2], np.int32), "key"),
        ("replay.next", np.zeros(4, np.int32), "replay"),
        ("acting.state.key", np.zeros(2, np.uint32), "acting"),
    ],
)
def test_whatever_differs_changes_the_digest_of_its_part(
    name: str, array: np.ndarray, part: str
) -> None:
    assert _changed(name, array) == {part, "all"}


def test_nothing_is_left_out() -> None:
    with pytest.raises(CheckpointError, match="expected an array of params, .*, got surprise/x"):
        digests({**ARRAYS, "surprise/x": np.zeros(1)})
