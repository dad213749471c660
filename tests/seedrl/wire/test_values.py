"""Numbers that a learner cannot take, each with the row that it is in."""

import math

import numpy as np
import pytest

from seedrl.wire.values import OBSERVATION_CHECKS, ValueFaultError, check_rewards


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int64])
def test_rewards_up_to_the_bound_are_taken(dtype: type) -> None:
    check_rewards(np.array([-1000, 0, 1000], dtype), 1000.0)
    check_rewards(np.array([-1000, 0, 1000], dtype))
    check_rewards(np.full(100, 3.0, np.float32), 4.0)  # together more than the bound


@pytest.mark.parametrize(
    ("number", "most", "is_absurd"),
    [
        (math.nan, 1e6, False),
        (math.inf, 0.0, False),
        (-math.inf, 1e6, False),
        (1e300, 0.0, False),
        (1e300, 1e6, False),
        (1e38, 1e6, True),
        (-1.1e6, 1e6, True),
    ],
)
def test_a_reward_beyond_it_is_the_fault_of_its_row(
    number: float, most: float, is_absurd: bool
) -> None:
    reward = np.array([0.0, 1.0, number, 1.0])
    with pytest.raises(ValueFaultError, match="reward") as fault:
        check_rewards(reward, most)
    assert (fault.value.row, fault.value.is_absurd) == (2, is_absurd)


def test_integers_that_overflow_when_multiplied_are_seen() -> None:
    with pytest.raises(ValueFaultError):
        check_rewards(np.array([2**32, 0], np.int64), 1e6)


@pytest.mark.parametrize("size", [3, 5000])
@pytest.mark.parametrize(
    ("dtype", "number"),
    [
        ("float16", math.nan),
        ("float32", math.nan),
        ("float32", -math.inf),
        ("float64", math.nan),
        ("float64", 1e300),
        ("int64", 2**31),
        ("uint64", 2**32),
    ],
)
def test_an_observation_that_a_learner_cannot_hold_is_the_fault_of_its_row(
    dtype: str, number: float, size: int
) -> None:
    leaf = np.ones((3, size), dtype)
    check = OBSERVATION_CHECKS[dtype]
    check("observation", leaf)
    leaf[0, 0] = 3e4 if dtype == "float16" else 2e9  # whose square few of them can hold
    check("observation", leaf)
    leaf[2, 1] = number
    with pytest.raises(ValueFaultError, match="observation") as fault:
        check("observation", leaf)
    assert (fault.value.row, fault.value.is_absurd) == (2, False)
