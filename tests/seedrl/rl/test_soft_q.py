"""Soft targets: numbers worked by hand."""

import functools

import jax
import numpy as np
import pytest

from seedrl.rl.soft_q import soft_targets

jitted_targets = jax.jit(functools.partial(soft_targets, gamma=0.99))


def targets(discount: float, q: tuple[float, float] = (10.0, 10.5)) -> jax.Array:
    one = np.ones(1, np.float32)
    q_t, log_probability = np.float32([[q[0]], [q[1]]]), -one
    temperature = np.float32(0.2)
    return jitted_targets(one, discount * one, q_t, log_probability, temperature=temperature)


def test_a_step_and_a_truncated_episode_bootstrap_with_entropy_and_a_terminated_one_does_not() -> (
    None
):
    assert float(targets(1.0)[0]) == pytest.approx(1 + 0.99 * (10 + 0.2))
    assert float(targets(0.0)[0]) == 1.0


def test_the_smaller_critic_counts_in_either_place() -> None:
    assert float(targets(1.0, (12.0, 10.0))[0]) == pytest.approx(11.098)
    assert float(targets(1.0, (10.0, 12.0))[0]) == pytest.approx(11.098)
