"""Epsilons of slots and epsilon-greedy actions."""

import math

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seedrl.rl.exploration import decayed, epsilon_greedy, epsilons, gumbel, uniform
from tests.gated import all_but

_act = jax.jit(epsilon_greedy)


def test_the_epsilons_of_ten_slots_are_those_of_seed_rl() -> None:
    found = epsilons(10, base=0.4, alpha=7.0)
    assert found.dtype == np.float32
    # ε_i = 0.4 ** linspace(1, 8, 10)[i]
    exponents = [1 + 7 * i / 9 for i in range(10)]
    np.testing.assert_allclose(found, [0.4**x for x in exponents], rtol=1e-6)
    np.testing.assert_allclose(found[[0, 9]], [0.4, 0.4**8], rtol=1e-6)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(num_slots=st.integers(0, 300), base=st.floats(0.01, 1), alpha=st.floats(0, 10))
def test_any_epsilon_is_that_of_the_paper(num_slots: int, base: float, alpha: float) -> None:
    expected = [
        math.exp(math.log(base) * (1 + alpha * slot / (num_slots - 1 or 1)))
        for slot in range(num_slots)
    ]
    np.testing.assert_allclose(epsilons(num_slots, base=base, alpha=alpha), expected, rtol=2e-7)


@pytest.mark.parametrize("env_steps", [0, 1, 500, 999, 1000, 10**12])
def test_epsilons_fall_from_their_start_to_their_end(env_steps: int) -> None:
    start, end = np.float64([1.0, 1.0, 0.3]), epsilons(3).astype(np.float64)
    found = decayed(start, end, 1000, env_steps)
    expected = [b + (a - b) * max(0, 1 - env_steps / 1000) for a, b in zip(start, end, strict=True)]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(decayed(start, end, 0, env_steps), epsilons(3))


def test_epsilon_zero_is_greedy_and_takes_the_first_of_equals() -> None:
    q_values = np.float32([[1, 3, 3], [5, 0, 2]])
    for seed in range(5):
        actions = _act(jax.random.key(seed), q_values, np.zeros(2, np.float32))
        assert actions.dtype == np.int32
        np.testing.assert_array_equal(actions, [1, 0])


def test_each_row_explores_at_its_own_epsilon_and_uniformly() -> None:
    num_rows, num_actions = 30_000, 3
    q_values = np.tile(np.float32([[0, 1, 0]]), (num_rows, 1))
    epsilon = np.repeat(np.float32([0.9, 0.3]), num_rows // 2)
    actions = np.asarray(_act(jax.random.key(3), q_values, epsilon))
    for rows, expected in ((actions[: num_rows // 2], 0.9), (actions[num_rows // 2 :], 0.3)):
        shares = np.bincount(rows, minlength=num_actions) / len(rows)
        # Half of the explored third each; 0.015 is four standard deviations.
        np.testing.assert_allclose(shares[[0, 2]], expected / num_actions, atol=0.015)


def test_a_random_action_is_uniform_over_the_legal_ones() -> None:
    num_rows, legal = 30_000, np.array([False, True, False, True, True])
    rows = np.tile(legal, (num_rows, 1))
    q_values = np.where(rows, np.float32(0), np.float32(-np.inf))
    actions = _act(jax.random.key(4), q_values, np.ones(num_rows, np.float32), rows)
    shares = np.bincount(actions, minlength=5) / num_rows
    # 0.011 is four standard deviations.
    np.testing.assert_allclose(shares[legal], 1 / 3, atol=0.011)
    assert shares[~legal].tolist() == [0, 0]


@pytest.mark.parametrize("shape", all_but([(2, 25)], [(2, 25), (1,), (3, 5, 4)]))
@pytest.mark.parametrize("key", [jax.random.PRNGKey(7), jax.random.key(2**31)])
def test_the_numbers_drawn_are_those_of_jax(shape: tuple[int, ...], key: jax.Array) -> None:
    for ours, theirs in ((uniform, jax.random.uniform), (gumbel, jax.random.gumbel)):
        expected = np.asarray(jax.jit(theirs, static_argnums=1)(key, shape))
        found = np.asarray(jax.jit(ours, static_argnums=1)(key, shape))
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
