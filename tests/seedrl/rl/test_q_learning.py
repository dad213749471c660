"""Double Q-learning errors: a worked example, a float64 oracle, masks and gradients."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from seedrl.rl.q_learning import TDErrors, n_step_td_errors
from seedrl.rl.value_scaling import identity, signed_hyperbolic
from seedrl.types import StepType, StoredStep, TimeStep

FIRST, MID, LAST = StepType.FIRST, StepType.MID, StepType.LAST


def stored(types: np.ndarray, rewards: np.ndarray, discounts: np.ndarray, actions: np.ndarray):
    timestep = TimeStep(types.astype(np.uint8), rewards.astype(np.float32), discounts, ())
    return StoredStep(timestep, actions.astype(np.int32), (), ())


def looped_errors(
    q_online: np.ndarray, q_target: np.ndarray, steps: StoredStep, n_steps: int, gamma: float
) -> np.ndarray:
    """R2D2's error written out for one row after the other, in float64 and with textbook h."""

    def h(x: float) -> float:
        return np.sign(x) * (np.sqrt(abs(x) + 1) - 1) + 1e-3 * x

    def h_inverse(y: float) -> float:
        root = np.sqrt(1 + 4e-3 * (abs(y) + 1 + 1e-3))
        return np.sign(y) * (((root - 1) / 2e-3) ** 2 - 1)

    num_rows, batch_size, _ = q_online.shape
    errors = np.zeros((num_rows - n_steps, batch_size))
    step = steps.timestep
    for t in range(num_rows - n_steps):
        for b in range(batch_size):
            if step.step_type[t, b] == LAST:
                continue
            total, weight, end = 0.0, 1.0, t
            while end < t + n_steps and (end == t or step.step_type[end, b] != LAST):
                end += 1
                total += weight * float(step.reward[end, b])
                weight *= gamma * float(step.discount[end, b])
            best = int(np.argmax(q_online[end, b]))
            total += weight * h_inverse(float(q_target[end, b, best]))
            errors[t, b] = h(total) - float(q_online[t, b, steps.action[t, b]])
    return errors


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


@settings(max_examples=25, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1), n_steps=st.sampled_from([1, 3]))
def test_any_stream_agrees_with_the_loop(seed: int, n_steps: int) -> None:
    q_online, q_target, steps = random_case(seed)
    td = r2d2_errors(q_online, q_target, steps, n_steps=n_steps)
    expected = looped_errors(q_online, q_target, steps, n_steps, 0.9)
    np.testing.assert_allclose(td.errors, expected, atol=2e-5)
    np.testing.assert_array_equal(td.is_trained, steps.timestep.step_type[:-n_steps] != LAST)


@jax.jit
def jitted_gradients(
    q_online: jax.Array, q_target: jax.Array, steps: StoredStep, cotangents: jax.Array
) -> tuple[jax.Array, jax.Array]:
    def of(q_online: jax.Array, q_target: jax.Array) -> jax.Array:
        errors = r2d2_errors(q_online, q_target, steps, n_steps=3).errors
        return jnp.sum(cotangents * 0.5 * jnp.square(errors))

    return jax.grad(of, argnums=(0, 1))(q_online, q_target)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_gradient_of_any_stream_is_minus_the_loops_error_at_the_executed_action(
    seed: int,
) -> None:
    q_online, q_target, steps = random_case(seed)
    errors = looped_errors(q_online, q_target, steps, 3, 0.9)
    cotangents = np.random.default_rng(seed).uniform(0.1, 1, errors.shape).astype(np.float32)
    of_online, of_target = jitted_gradients(q_online, q_target, steps, cotangents)
    expected = np.zeros(q_online.shape)
    for (t, b), error in np.ndenumerate(errors):
        expected[t, b, steps.action[t, b]] = -cotangents[t, b] * error
    np.testing.assert_allclose(of_online, expected, atol=2e-5)
    assert not np.any(of_target)


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
