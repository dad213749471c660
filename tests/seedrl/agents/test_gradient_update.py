"""A step down a gradient is guarded in all that it computes."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from learner.learning.learn_step import is_all_finite
from seedrl.agents.apex import ApexConfig
from seedrl.agents.gradient_update import (
    GradientUpdate,
    LossOutput,
    copied,
    learning_rate_metrics,
    periodic_copy,
)
from seedrl.agents.impala import ImpalaConfig
from seedrl.agents.ppo import PpoConfig
from seedrl.agents.r2d2 import R2D2Config
from seedrl.networks.config import QNetworkConfig
from tests.seedrl.agents.actor_critics import PLAIN_NETWORK, PLAIN_SPEC


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


_Q_NETWORK = QNetworkConfig(
    torso="mlp", torso_sizes=(), core="none", head_sizes=(), frame_stack=1, dueling=False
)
_DECAY: Any = {"learning_rate": 1.0, "learning_rate_decay_updates": 2}
_IMPALA = ImpalaConfig(network=PLAIN_NETWORK, unroll=5, **_DECAY)


@pytest.mark.parametrize(
    ("config", "num_steps"),
    [
        (R2D2Config(network=_Q_NETWORK, **_DECAY), 2),
        (ApexConfig(network=_Q_NETWORK, optimizer="adam", **_DECAY), 2),
        (ApexConfig(network=_Q_NETWORK, optimizer="rmsprop", **_DECAY), 2),
        (_IMPALA, 2),
        (PpoConfig(network=PLAIN_NETWORK, epochs=2, minibatches=2, **_DECAY), 8),
    ],
)
def test_a_rate_that_decays_is_shown_at_each_step_of_the_optimizer(
    config: Any, num_steps: int
) -> None:
    decaying = config.build(PLAIN_SPEC).update
    constant = dataclasses.replace(config, learning_rate_decay_updates=0).build(PLAIN_SPEC).update
    gradient = {"w": np.float32([0.1])}

    def step(states: Any, _: None) -> tuple[Any, Any]:
        state, other = states
        shown = learning_rate_metrics(decaying.learning_rate, state)["learning_rate"]
        delta, state = decaying.optimizer.update(gradient, state, gradient)
        assert learning_rate_metrics(constant.learning_rate, other) == {}
        whole, other = constant.optimizer.update(gradient, other, gradient)
        return (state, other), (shown, delta["w"][0] / whole["w"][0])

    @jax.jit
    def stepped() -> Any:
        states = tuple(update.optimizer.init(gradient) for update in (decaying, constant))
        return jax.lax.scan(step, states, length=num_steps + 2)[1]

    shown, taken = stepped()
    expected = [max(0.0, 1 - step / num_steps) for step in range(num_steps + 2)]
    np.testing.assert_allclose(shown, expected, atol=1e-6)
    np.testing.assert_allclose(taken, expected, atol=1e-6)
