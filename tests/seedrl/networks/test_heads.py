"""Heads: the dueling identity, layouts, and how a policy begins."""

import jax
import numpy as np

from seedrl.networks.heads import (
    DuelingHead,
    GaussianAndValueHead,
    PolicyAndValueHead,
)

FEATURES = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)


def test_dueling_adds_the_value_to_centred_advantages() -> None:
    head = DuelingHead(num_actions=3, hidden_sizes=())
    params = jax.jit(head.init)(jax.random.key(0), FEATURES)
    q_values = jax.jit(head.apply)(params, FEATURES)
    weights = params["params"]
    value = FEATURES @ weights["value"]["kernel"] + weights["value"]["bias"][None, None]
    advantage = FEATURES @ weights["advantage"]["kernel"]
    expected = value + advantage - np.mean(advantage, axis=-1, keepdims=True)
    np.testing.assert_allclose(q_values, expected, atol=1e-5)
    np.testing.assert_allclose(np.mean(q_values, axis=-1, keepdims=True), value, atol=1e-5)
    assert "bias" not in weights["advantage"]


def test_a_policy_begins_almost_uniform_beside_a_value_of_its_own() -> None:
    head = PolicyAndValueHead(num_outputs=3, hidden_sizes=(5,))
    params = jax.jit(head.init)(jax.random.key(0), FEATURES)
    assert set(params["params"]) == {"policy_hidden", "policy", "value_hidden", "value"}
    logits, value = jax.jit(head.apply)(params, FEATURES)
    assert (logits.shape, value.shape) == ((2, 3, 3), (2, 3))
    assert 0 < np.abs(logits).max() < 0.05
    assert np.abs(value).max() > 0.05


def test_real_actions_begin_at_the_middle_with_one_deviation_for_all_observations() -> None:
    head = GaussianAndValueHead(num_outputs=3, hidden_sizes=(5,))
    params = jax.jit(head.init)(jax.random.key(0), FEATURES)
    said = jax.jit(head.apply)(params, FEATURES)
    assert (said.mean.shape, said.value.shape) == ((2, 3, 3), (2, 3))
    assert 0 < np.abs(said.mean).max() < 0.05
    np.testing.assert_allclose(said.log_std, np.full((2, 3, 3), np.log(0.5)), rtol=1e-6)
    assert params["params"]["log_std"].shape == (3,)
