"""A step down a gradient is guarded in all that it computes."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from learner.learning.finite_guard import is_all_finite
from seedrl.agents.gradient_update import (
    GradientUpdate,
    LossOutput,
    copied,
    periodic_copy,
    polyak_average,
)


def _times(params: Any, target: Any, sequence: Any, weights: Any, key: Any) -> Any:
    del target, weights, key
    return params * sequence, LossOutput(priorities=(), metrics={})


@pytest.mark.parametrize(
    ("factor", "optimizer", "finite"),
    [
        (3.0, optax.sgd(0.1), [True, True, True]),
        (3.0, optax.scale(np.nan), [True, True, False]),
        (3.0, optax.scale(np.inf), [True, True, False]),
        (np.inf, optax.adam(0.1), [False, False, False]),
    ],
)
def test_loss_gradient_and_step_must_all_be_finite(
    factor: float, optimizer: Any, finite: list[bool]
) -> None:
    update = GradientUpdate(loss=_times, optimizer=optimizer)
    nothing: Any = ()
    state = update.init_state(jnp.ones(()))
    _, output = update(state, jnp.float32(factor), nothing, nothing, mean=lambda tree: tree)
    assert [bool(is_all_finite(number)) for number in output.guarded] == finite


ONLINE = jax.device_put({"weight": np.float32([1, 2]), "bias": np.float32(3)})
TARGET = jax.device_put({"weight": np.float32([-1, -2]), "bias": np.float32(-3)})
jitted_copy = jax.jit(periodic_copy, static_argnums=0)


@pytest.mark.parametrize(
    ("updates", "is_due"), [(1, False), (2, False), (3, True), (4, False), (6, True)]
)
def test_the_target_follows_at_every_interval(updates: int, is_due: bool) -> None:
    found = jitted_copy(3, ONLINE, TARGET, np.int32(updates))
    jax.tree.map(np.testing.assert_array_equal, found, ONLINE if is_due else TARGET)


def test_a_copy_shares_no_memory() -> None:
    for original, copy in zip(
        jax.tree.leaves(ONLINE), jax.tree.leaves(copied(ONLINE)), strict=True
    ):
        np.testing.assert_array_equal(copy, original)
        assert copy.unsafe_buffer_pointer() != original.unsafe_buffer_pointer()


def test_a_polyak_average_goes_a_part_of_the_way() -> None:
    found = jax.jit(polyak_average)(0.25, ONLINE, TARGET)
    jax.tree.map(np.testing.assert_allclose, found, {"weight": [-0.5, -1.0], "bias": -1.5})
