"""Double Q-learning errors: a worked example, and masks. Its oracle is that of R2D2's loss."""

import functools

import jax
import numpy as np

from seedrl.rl.q_learning import TDErrors, n_step_td_errors
from seedrl.rl.value_scaling import identity, signed_hyperbolic
from seedrl.types import StepType, StoredStep, TimeStep

FIRST, MID, LAST = StepType.FIRST, StepType.MID, StepType.LAST


def stored(types: np.ndarray, rewards: np.ndarray, discounts: np.ndarray, actions: np.ndarray):
    timestep = TimeStep(types.astype(np.uint8), rewards.astype(np.float32), discounts, ())
    return StoredStep(timestep, actions.astype(np.int32), (), ())


def test_a_worked_example() -> None:
    steps = stored(
        np.array([[MID], [MID], [LAST]]),
        np.array([[9.0], [1.0], [2.0]]),
        np.array([[1.0], [1.0], [1.0]], np.float32),
        np.array([[1], [0], [0]]),
    )
    q_online = np.array([[[0, 4]], [[7, 6]], [[1, 8]]], np.float32)
    q_target = np.array([[[0, 0]], [[3, 5]], [[6, 10]]], np.float32)
    errors = functools.partial(n_step_td_errors, n_steps=1, gamma=0.5, scaling=identity())
    td = jax.jit(errors)(q_online, q_target, steps=steps)
    # Row 0: 1 + 0.5 * Q_target(row 1, action 0) - Q(row 0, action 1) = 1 + 1.5 - 4.
    # Row 1: 2 + 0.5 * Q_target(row 2, action 1) - Q(row 1, action 0) = 2 + 5 - 7.
    np.testing.assert_allclose(td.errors, [[-1.5], [0.0]])
    np.testing.assert_allclose(td.targets, [[2.5], [7.0]])
    np.testing.assert_array_equal(td.is_trained, [[True], [True]])


@functools.partial(jax.jit, static_argnames="n_steps")
def r2d2_errors(
    q_online: jax.Array, q_target: jax.Array, steps: StoredStep, n_steps: int
) -> TDErrors:
    return n_step_td_errors(
        q_online,
        q_target,
        steps=steps,
        n_steps=n_steps,
        gamma=0.9,
        scaling=signed_hyperbolic(1e-3),
    )


def random_case(seed: int, num_rows: int = 8, batch_size: int = 3, num_actions: int = 4):
    random = np.random.default_rng(seed)
    shape = (num_rows, batch_size)
    types = random.choice([FIRST, MID, LAST], size=shape, p=[0.1, 0.6, 0.3])
    discounts = np.where(types == LAST, random.integers(0, 2, shape), 1).astype(np.float32)
    actions = random.integers(0, num_actions, shape)
    steps = stored(types, random.normal(size=shape), discounts, actions)
    q_online, q_target = random.normal(0, 3, (2, *shape, num_actions)).astype(np.float32)
    return q_online, q_target, steps


def test_huge_values_on_last_rows_reach_nothing_but_their_bootstrap() -> None:
    q_online, q_target, steps = random_case(4)
    is_last = steps.timestep.step_type == LAST
    assert is_last[:-3].any()
    terminated = steps.timestep._replace(discount=np.where(is_last, 0, 1).astype(np.float32))
    steps = steps._replace(timestep=terminated)
    clean = r2d2_errors(q_online, q_target, steps, n_steps=3)
    poison = np.where(is_last[..., None], np.float32(1e9), np.float32(0))
    poisoned = r2d2_errors(q_online + poison, q_target - poison, steps, n_steps=3)
    np.testing.assert_array_equal(poisoned.errors, clean.errors)
    np.testing.assert_array_equal(poisoned.targets, clean.targets)
    assert np.all(np.asarray(clean.errors)[is_last[:-3]] == 0)
