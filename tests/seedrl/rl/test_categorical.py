"""Entropy of a policy over discrete actions, also of one that forbids some of them."""

import jax
import jax.numpy as jnp
import numpy as np

from seedrl.rl.categorical import entropy


def test_forbidden_actions_add_nothing_to_the_entropy_or_its_gradient() -> None:
    np.testing.assert_allclose(entropy(jnp.array([0.0, -jnp.inf, 0.0])), np.log(2), rtol=1e-6)
    gradient = jax.grad(entropy)(jnp.array([1.0, -jnp.inf, 0.0]))
    expected = jax.grad(entropy)(jnp.array([1.0, 0.0]))
    np.testing.assert_allclose(gradient[jnp.array([0, 2])], expected, rtol=1e-6)
    assert gradient[1] == 0.0


def test_logits_that_are_no_number_stay_visible() -> None:
    assert np.isnan(entropy(jnp.array([jnp.nan, 0.0])))
