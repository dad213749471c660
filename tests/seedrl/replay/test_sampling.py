"""The stratified draw: frequencies, strata, and what must never be drawn."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedrl.replay.sampling import stratified_draw
from seedrl.types import Array
from tests.gated import all_but


@functools.partial(jax.jit, static_argnums=(1, 2))
def _draw_batches(mass: Array, batch_size: int, num_batches: int) -> tuple[Array, Array]:
    keys = jax.random.split(jax.random.key(3), num_batches)
    return jax.vmap(lambda key: stratified_draw(mass, key, batch_size))(keys)


def draw_many(mass: np.ndarray, batch_size: int, num_batches: int) -> tuple[np.ndarray, np.ndarray]:
    """`[num_batches, batch_size]` indices and probabilities, of a program for each size."""
    index, probability = _draw_batches(mass.astype(np.float32), batch_size, num_batches)
    return np.asarray(index), np.asarray(probability)


def test_every_stratum_is_drawn_from_once() -> None:
    mass = np.random.default_rng(1).uniform(0.5, 2.0, size=96)
    edges = np.concatenate([[0], np.cumsum(mass)]) / mass.sum() * 96
    for index in draw_many(mass, 96, 20)[0]:
        stratum = np.arange(96)
        # Item i spans [edges[i], edges[i + 1]] and must meet [b, b + 1].
        assert np.all(edges[index] <= stratum + 1 + 1e-4)
        assert np.all(edges[index + 1] >= stratum - 1e-4)


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
@pytest.mark.parametrize("size", all_but([3, 2**17], [1, 3, 1000, 2**17]))
def test_zero_mass_is_never_drawn(size: int, scale: float) -> None:
    rng = np.random.default_rng(size)
    mass = rng.exponential(size=size) * scale
    mass[rng.random(size) < 0.7] = 0.0
    mass[size // 2] = scale
    mass[-1] = 0.0 if size > 1 else scale
    mass = np.minimum(mass, 1e30)
    index, probability = draw_many(mass, 64, 8)
    assert np.all(mass[index] > 0)
    assert np.all((probability > 0) & (probability <= 1))


def test_each_of_a_million_masses_has_its_exact_share(monkeypatch: pytest.MonkeyPatch) -> None:
    # Sweeps the uniform finely: the share of its values that lead to an item is that item's share.
    # A flat float32 prefix sum misses it by several counts: it cannot place 1 next to a million.
    monkeypatch.setattr(jax.random, "uniform", lambda key, shape: jnp.full(shape, key))
    mass = np.random.default_rng(2).uniform(0.2, 2.0, size=2**20).astype(np.float32)
    sweep = np.float32(0.5) + np.arange(256, dtype=np.float32) * np.float32(2.0**-20)
    # Optimized: what this takes is the drawing, not the compiling.
    draw = jax.jit(
        jax.vmap(lambda mass, u: stratified_draw(mass, u, 64), in_axes=(None, 0)),
        compiler_options={"xla_backend_optimization_level": 1},
    )
    index = np.asarray(draw(mass, sweep)[0])
    for stratum in range(64):
        items, counts = np.unique(index[:, stratum], return_counts=True)
        np.testing.assert_array_equal(np.diff(items), 1)
        expected = mass[items] / mass.sum(dtype=np.float64) * 64 * 2.0**20
        # The sweep begins and ends amid an item.
        assert np.all(np.abs(counts - expected)[1:-1] <= 1.0 + 0.01 * expected[1:-1])


def test_nothing_to_draw_gives_probability_zero() -> None:
    index, probability = draw_many(np.zeros(1000), 64, 8)
    np.testing.assert_array_equal(index, 0)
    np.testing.assert_array_equal(probability, 0)
