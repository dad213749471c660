"""Entropy of a policy over discrete actions, also of one that forbids some of them."""

import jax
import numpy as np

from seedrl.rl.categorical import entropy

_entropy_and_gradient = jax.jit(jax.value_and_grad(entropy))


def test_forbidden_actions_add_nothing_to_the_entropy_or_its_gradient() -> None:
    found, _ = _entropy_and_gradient(np.float32([0, -np.inf, 0]))
    np.testing.assert_allclose(found, np.log(2), rtol=1e-6)
    _, gradient = jax.device_get(_entropy_and_gradient(np.float32([1, -np.inf, 0])))
    _, expected = _entropy_and_gradient(np.float32([1, 0]))
    np.testing.assert_allclose(gradient[[0, 2]], expected, rtol=1e-6)
    assert gradient[1] == 0.0


def test_logits_that_are_no_number_stay_visible() -> None:
    assert np.isnan(_entropy_and_gradient(np.float32([np.nan, 0]))[0])
