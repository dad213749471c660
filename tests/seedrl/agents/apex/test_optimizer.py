"""Ape-X's centred RMSProp is that of optax, and stays finite where that does not."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from seedrl.agents.apex.config import ApexConfig
from seedrl.agents.apex.functions import optimizer_of


@pytest.mark.parametrize("size", [0.3, 3.0, 30.0])
def test_centred_rmsprop_stays_finite_where_a_gradient_never_changes(size: float) -> None:
    """Its variance is a difference of two numbers that are nearly equal then."""
    optimizer = optimizer_of(ApexConfig(max_gradient_norm=100.0))
    gradient = jnp.float32(size)

    def step(state: Any, _: None) -> Any:
        delta, state = optimizer.update(gradient, state)
        return state, delta

    _, deltas = jax.jit(lambda: jax.lax.scan(step, optimizer.init(gradient), length=2000))()
    assert np.isfinite(deltas).all()


def test_centred_rmsprop_is_that_of_optax_where_gradients_change() -> None:
    config = ApexConfig(max_gradient_norm=100.0)
    theirs = optax.rmsprop(
        config.learning_rate, config.rmsprop_decay, config.optimizer_epsilon, centered=True
    )
    found: list[list[Any]] = []
    for optimizer in (optimizer_of(config), theirs):
        state, taken = optimizer.init(jnp.zeros(3)), []
        for gradient in np.float32(np.random.default_rng(0).normal(size=(20, 3))):
            delta, state = optimizer.update(jnp.asarray(gradient), state)
            taken.append(delta)
        found.append(taken)
    np.testing.assert_allclose(*found, rtol=1e-6)
