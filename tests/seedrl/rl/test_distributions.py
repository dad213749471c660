"""Policies over actions: densities by other means, numbers by hand, extremes, and draws."""

import itertools
import math
from statistics import NormalDist
from typing import Any

import jax
import numpy as np
import pytest

from seedrl.rl.distributions import Categorical, Gaussian, MultiCategorical, TanhGaussian

# Methods of NamedTuples as functions of the distribution and the rest.
_entropy_and_gradient = jax.jit(jax.value_and_grad(lambda logits: Categorical(logits).entropy()))
GAUSSIAN_LOG_PROBABILITY = jax.jit(Gaussian.log_probability)
TANH_LOG_PROBABILITY = jax.jit(TanhGaussian.log_probability)
SLOPE = jax.jit(jax.grad(TanhGaussian.log_probability, argnums=1))
RANDOM = np.random.default_rng(3)
MEAN, LOG_STD, ACTION = RANDOM.normal(size=(3, 4, 5, 2)).astype(np.float32)


def test_forbidden_actions_add_nothing_to_the_entropy_or_its_gradient() -> None:
    found, _ = _entropy_and_gradient(np.float32([0, -np.inf, 0]))
    np.testing.assert_allclose(found, np.log(2), rtol=1e-6)
    _, gradient = jax.device_get(_entropy_and_gradient(np.float32([1, -np.inf, 0])))
    _, expected = _entropy_and_gradient(np.float32([1, 0]))
    np.testing.assert_allclose(gradient[[0, 2]], expected, rtol=1e-6)
    assert gradient[1] == 0.0


# Of three elements, one of which has no choice.
COUNTS = (3, 1, 4)
CHOICES = list(itertools.product(*map(range, COUNTS)))


def of_parts(logits: Any) -> MultiCategorical:
    return MultiCategorical(logits, COUNTS)


def part_probabilities(logits: np.ndarray) -> list[np.ndarray]:
    """Of each element by itself, float64."""
    exponentials = np.exp(logits.astype(np.float64))
    parts = np.split(exponentials, np.cumsum(COUNTS)[:-1], axis=-1)
    return [part / part.sum(axis=-1, keepdims=True) for part in parts]


def test_log_probabilities_of_several_actions_are_of_independent_ones_of_any_shape() -> None:
    logits = RANDOM.normal(size=(5, 2, sum(COUNTS))).astype(np.float32)
    parts = part_probabilities(logits)
    density = jax.jit(lambda logits, action: of_parts(logits).log_probability(action))
    total = np.zeros((5, 2))
    for choice in CHOICES:
        action = np.broadcast_to(np.array(choice, np.int32).reshape(3, 1), (5, 2, 3, 1))
        found = density(logits, action)
        expected = np.prod([part[..., k] for part, k in zip(parts, choice, strict=True)], axis=0)
        np.testing.assert_allclose(found, np.log(expected), rtol=2e-5, atol=2e-6)
        total += np.exp(np.asarray(found, np.float64))
    np.testing.assert_allclose(total, 1, rtol=1e-6)


def test_the_entropy_of_several_actions_is_that_of_their_joint_distribution() -> None:
    logits = RANDOM.normal(size=(4, sum(COUNTS))).astype(np.float32)
    parts = part_probabilities(logits)
    joint = np.einsum("ba,bc,bd->bacd", *parts).reshape(4, -1)
    found = jax.jit(lambda logits: of_parts(logits).entropy())(logits)
    np.testing.assert_allclose(found, -np.sum(joint * np.log(joint), axis=-1), rtol=1e-5)


def test_gradients_of_several_actions_are_those_of_each_by_itself() -> None:
    logits = RANDOM.normal(size=sum(COUNTS)).astype(np.float32)
    parts, action = part_probabilities(logits), np.array([2, 0, 1], np.int32)
    chosen = np.concatenate([np.eye(n)[a] for n, a in zip(COUNTS, action, strict=True)])
    # d log p(a) / d z_i = [i = a] - p_i,  d H / d z_i = -p_i (log p_i + H).
    entropies = [-np.sum(part * np.log(part)) for part in parts]
    slopes = [-part * (np.log(part) + h) for part, h in zip(parts, entropies, strict=True)]
    of_density = jax.jit(jax.grad(lambda logits: of_parts(logits).log_probability(action)))
    of_entropy = jax.jit(jax.grad(lambda logits: of_parts(logits).entropy()))
    np.testing.assert_allclose(of_density(logits), chosen - np.concatenate(parts), atol=1e-6)
    np.testing.assert_allclose(of_entropy(logits), np.concatenate(slopes), atol=1e-6)


def test_several_actions_are_drawn_independently_or_each_the_likeliest() -> None:
    logits = RANDOM.normal(size=sum(COUNTS)).astype(np.float32)
    (joint,) = np.einsum("ba,bc,bd->bacd", *part_probabilities(logits[None]))
    exploration = np.repeat(np.array([1.0, 0.0], np.float32), 8000)
    draw = jax.jit(lambda logits, *rest: of_parts(logits).draw(*rest))
    rows = np.repeat(logits[None], 16_000, axis=0)
    actions = np.asarray(draw(rows, exploration, jax.random.key(0)))
    assert actions.dtype == np.int32 and actions.shape == (16_000, 3)
    counted = np.zeros(COUNTS)
    np.add.at(counted, tuple(actions[:8000].T), 1 / 8000)
    np.testing.assert_allclose(counted, joint, atol=0.02)
    assert (actions[8000:] == np.unravel_index(np.argmax(joint), COUNTS)).all()


@np.vectorize
def normal_log_density(mean: Any, log_std: Any, action: Any) -> Any:
    """Of one number, by the standard library in float64."""
    return math.log(NormalDist(float(mean), math.exp(log_std)).pdf(float(action)))


def test_gaussian_densities_are_those_of_independent_numbers_of_any_shape() -> None:
    found = GAUSSIAN_LOG_PROBABILITY(Gaussian(MEAN, LOG_STD), ACTION[..., None])
    expected = normal_log_density(MEAN, LOG_STD, ACTION).sum(axis=-1)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    # Worked by hand: mu .5, sigma .5, a 1: -.5 + ln 2 - .9189385.
    half = np.full((1, 1), 0.5, np.float32)
    one = GAUSSIAN_LOG_PROBABILITY(Gaussian(half, np.log(half)), np.ones_like(half))
    np.testing.assert_allclose(one, [-0.7257914], rtol=1e-6)


def test_gaussian_entropies_are_integrals() -> None:
    # The integral of -p ln p, 12 standard deviations to either side.
    at = np.linspace(-12, 12, 4001)
    wide = LOG_STD.astype(np.float64)
    log_p = normal_log_density(0, LOG_STD[..., None], at * np.exp(wide[..., None]))
    expected = np.trapezoid(-np.exp(log_p) * log_p, at) * np.exp(wide)
    found = jax.jit(Gaussian.entropy)(Gaussian(MEAN, LOG_STD))
    np.testing.assert_allclose(found, expected.sum(axis=-1), rtol=1e-5)


def test_exploration_of_one_draws_and_of_none_takes_the_mean() -> None:
    mean = np.repeat(np.array([[2.0, -1.0]], np.float32), 4000, axis=0)
    log_std = np.log(np.repeat(np.array([[0.5, 3.0]], np.float32), 4000, axis=0))
    exploration = np.repeat(np.array([1.0, 0.0], np.float32), 2000)
    draw = jax.jit(Gaussian.draw)
    actions = np.asarray(draw(Gaussian(mean, log_std), exploration, jax.random.key(0)))
    np.testing.assert_array_equal(actions[2000:], mean[2000:])
    np.testing.assert_allclose(actions[:2000].mean(axis=0), mean[0], atol=0.25)
    np.testing.assert_allclose(actions[:2000].std(axis=0), [0.5, 3.0], rtol=0.06)
    assert len(np.unique(actions[:2000, 0])) == 2000


def policy_of(mean: float, std: float) -> TanhGaussian:
    return TanhGaussian(np.array([mean], np.float32), np.log(np.array([std], np.float32)))


def log_density(u: np.ndarray, mean: float, std: float) -> np.ndarray:
    """ln π(tanh(u)) by the change of variables, in float64: 1 - tanh² as 1 / cosh²."""
    gaussian = -0.5 * ((u - mean) / std) ** 2 - math.log(std) - 0.5 * math.log(2 * math.pi)
    return gaussian + 2 * np.log(np.cosh(u))


def test_a_worked_example_of_tanh() -> None:
    found = float(TANH_LOG_PROBABILITY(policy_of(0.5, 0.5), np.ones(1, np.float32)))
    assert found == pytest.approx(0.1417703, abs=1e-6)


@pytest.mark.parametrize(("mean", "std"), [(0.0, 1.0), (0.5, 0.5), (-1.0, 0.3), (2.0, 0.8)])
def test_the_density_of_squashed_actions_integrates_to_one(mean: float, std: float) -> None:
    """Over u, where π(a) da = π(tanh u) / cosh² u du; a float64 sum of float32 densities."""
    u = np.linspace(mean - 9 * std, mean + 9 * std, 4001)
    policy = TanhGaussian(np.float32([[mean]]), np.float32([[math.log(std)]]))
    policy = jax.tree.map(lambda leaf: np.repeat(leaf, len(u), axis=0), policy)
    found = np.asarray(TANH_LOG_PROBABILITY(policy, np.float32(u[:, None])), np.float64)
    np.testing.assert_allclose(found, log_density(u, mean, std), rtol=1e-5, atol=2e-5)
    mass = np.trapezoid(np.exp(found) / np.cosh(u) ** 2, u)
    assert mass == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize(("u", "log_slope"), [(8, -14.614), (9, -16.614), (10, -18.614)])
@pytest.mark.parametrize("sign", [1, -1])
def test_far_out_the_correction_is_exact(u: int, log_slope: float, sign: int) -> None:
    # tanh(u) is 1 in float32, and with 1e-6 inside the logarithm the last would be -13.816.
    policy = policy_of(sign * u, 1.0)
    found = float(TANH_LOG_PROBABILITY(policy, np.float32([sign * u])))
    assert found == pytest.approx(-0.5 * math.log(2 * math.pi) - log_slope, abs=1e-3)
    slope = SLOPE(policy, np.float32([sign * u]))
    assert float(slope[0]) == pytest.approx(2 * sign, abs=1e-3)  # of -2 (ln 2 - |u|)


def test_samples_carry_their_own_log_probability_summed_over_the_numbers_of_an_action() -> None:
    policy = TanhGaussian(np.float32([[0.3, -0.6]]), np.float32([[-0.5, 0.2]]))
    policy = jax.tree.map(lambda leaf: np.repeat(leaf, 4000, axis=0), policy)
    drawn = jax.jit(TanhGaussian.sample)(policy, jax.random.key(0))
    u = np.arctanh(np.asarray(drawn.action, np.float64))
    columns = [(0.3, math.exp(-0.5)), (-0.6, math.exp(0.2))]
    expected = [log_density(u[:, d], *parameters) for d, parameters in enumerate(columns)]
    np.testing.assert_allclose(drawn.log_probability, sum(expected), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(u.mean(0), [0.3, -0.6], atol=0.06)
    np.testing.assert_allclose(u.std(0), [math.exp(-0.5), math.exp(0.2)], rtol=0.04)
