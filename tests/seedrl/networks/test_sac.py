"""Networks for a box of actions: what they see, and how they begin."""

import functools
from typing import Any

import jax
import numpy as np
import pytest

from seedrl.networks.config import BoxNetworkConfig
from seedrl.networks.sac import BoxNetwork
from seedrl.rl.distributions import TanhGaussian
from seedrl.specs import ArraySpec, BoxSpec, EnvSpec

BOX = BoxSpec((3,), (-1.0,) * 3, (1.0,) * 3)
IMAGE = EnvSpec({"image": ArraySpec((36, 36, 2), "uint8"), "speed": ArraySpec((), "float64")}, BOX)
KEY = jax.random.key(0)
VECTOR = EnvSpec(ArraySpec((4,), "float32"), BOX)


def observations(number: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    image = random.integers(0, 256, (number, 36, 36, 2), dtype=np.uint8)
    return {"image": image, "speed": random.normal(size=number).astype(np.float32)}


def test_images_and_numbers_are_seen_by_the_actor_and_by_each_critic() -> None:
    network = BoxNetworkConfig(actor_sizes=(5,), critic_sizes=(6,)).build(IMAGE)
    actor = jax.eval_shape(network.init_actor, jax.random.key(0))
    critics = jax.eval_shape(network.init_critics, jax.random.key(0))
    assert critics.memory == ()
    for params in (actor, *critics.twins):
        assert "NatureEncoder_0" in params["params"]["ObservationTorso_0"]
    seen = observations(7)
    policy = jax.eval_shape(network.policy, actor, (), seen)
    assert (policy.mean.shape, policy.log_std.shape) == ((7, 3), (7, 3))
    values = jax.eval_shape(network.q_values, critics, (), seen, np.zeros((7, 3), np.float32))
    assert (values.shape, values.dtype) == ((2, 7), np.float32)


@functools.cache
def begun() -> tuple[BoxNetwork, Any, Any]:
    """A network, and what its actor and its critics begin with."""
    config = BoxNetworkConfig(actor_sizes=(32,), critic_sizes=(32,))
    network = config.build(VECTOR)
    inits = jax.jit(lambda key: (network.init_actor(key), network.init_critics(key)))
    return network, *jax.device_get(inits(KEY))


def test_at_first_all_actions_are_about_as_likely_and_the_critics_differ() -> None:
    network, actor, critics = begun()
    seen = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)

    @jax.jit
    def said(actor: Any, critics: Any) -> tuple[TanhGaussian, jax.Array]:
        action = np.zeros((9, 3), np.float32)
        return network.policy(actor, (), seen), network.q_values(critics, (), seen, action)

    policy, (first, second) = jax.device_get(said(actor, critics))
    np.testing.assert_allclose(policy.mean, 0.0, atol=0.05)
    np.testing.assert_allclose(policy.log_std, 0.0, atol=0.05)
    assert np.min(np.abs(first - second)) > 1e-4


def test_dense_layers_begin_as_pytorchs() -> None:
    """Every number is drawn from within plus or minus 1 / sqrt(inputs)."""
    _, actor, critics = begun()
    torso = actor["params"]["ObservationTorso_0"]
    layers = [*torso["dense"].values()]
    for twin in critics.twins:
        layers += [*twin["params"]["dense"].values(), twin["params"]["q"]]
    assert len(layers) == 1 + 2 * 2
    for layer in layers:
        inputs, outputs = layer["kernel"].shape
        tolerance = 4 / np.sqrt(2 * inputs * outputs)  # standard errors of a deviation
        assert np.std(layer["kernel"]) == pytest.approx(np.sqrt(1 / (3 * inputs)), rel=tolerance)
        for leaf in layer.values():
            assert np.all(np.abs(leaf) <= 1 / np.sqrt(inputs))
            assert np.all(leaf != 0)
