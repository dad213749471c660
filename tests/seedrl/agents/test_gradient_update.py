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
    LinearDecay,
    LossOutput,
    copied,
    periodic_copy,
)
from seedrl.agents.impala import ImpalaConfig
from seedrl.agents.ppo import PpoConfig
from seedrl.agents.r2d2 import R2D2Config
from seedrl.agents.sac import SacConfig
from seedrl.networks.config import QNetworkConfig
from seedrl.specs import BoxSpec, EnvSpec
from tests.seedrl.agents.actor_critics import (
    PLAIN_NETWORK,
    PLAIN_SPEC,
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


@pytest.mark.parametrize("start", [1.0, 0.01, 3.0])
def test_a_decay_is_a_line_to_zero(start: float) -> None:
    env_steps = np.array([0, 1, 333, 999, 1000, 5000, 30_000_001])
    for steps in (1000, 50_000_000, 5_000_000_000):  # the last is beyond int32
        expected = np.float64(start) * (1 - np.minimum(env_steps / steps, 1.0))
        found = jax.jit(LinearDecay(start, steps).at)(env_steps.astype(np.float32))
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7 * start)
    assert LinearDecay(start).at(()) == start


def _times_cost(
    params: Any, target: Any, sequence: Any, weights: Any, key: Any, *, cost: Any
) -> Any:
    return _times(params * cost, target, sequence, weights, key)


@pytest.mark.parametrize("env_steps", [0, 250, 1000, 4000])
def test_steps_and_costs_shrink_with_environment_steps_and_are_shown(env_steps: int) -> None:
    nothing: Any = ()
    update = GradientUpdate(
        loss=_times_cost,
        optimizer=optax.sgd(0.5),
        learning_rate=LinearDecay(0.5, 1000),
        scheduled={"cost": LinearDecay(8.0, 2000)},
    )
    state = update.init_state(jnp.ones(()))._replace(env_steps=np.float32(env_steps))
    new, output = update(state, jnp.float32(3), nothing, nothing, mean=lambda tree: tree)
    left, cost = max(0.0, 1 - env_steps / 1000), 8 * max(0.0, 1 - env_steps / 2000)
    assert float(new.params) == pytest.approx(1 - 0.5 * left * 3 * cost)
    shown = {"learning_rate": 0.5 * left, "cost": cost, "gradient_norm": 3 * cost, "loss": 3 * cost}
    assert {name: float(value) for name, value in output.metrics.items()} == pytest.approx(shown)


_Q_NETWORK = QNetworkConfig(torso="mlp", torso_sizes=(), core="none", head_sizes=(), frame_stack=1)
_DECAY: Any = {"learning_rate_decay_steps": 300}
_BOX = dataclasses.replace(PLAIN_SPEC, action=BoxSpec((1,), (-1,), (1,)))


@pytest.mark.parametrize(
    ("config", "spec"),
    [
        (R2D2Config(network=_Q_NETWORK, **_DECAY), PLAIN_SPEC),
        (ApexConfig(network=_Q_NETWORK, **_DECAY), PLAIN_SPEC),
        (ImpalaConfig(network=PLAIN_NETWORK, entropy_cost_decay_steps=70, **_DECAY), PLAIN_SPEC),
        (PpoConfig(network=PLAIN_NETWORK, entropy_cost_decay_steps=70, **_DECAY), PLAIN_SPEC),
        (SacConfig(**_DECAY), _BOX),
    ],
)
def test_every_agent_decays_as_its_config_asks(config: Any, spec: EnvSpec) -> None:
    agent = config.build(spec)
    rate = getattr(config, "learning_rate", None) or config.actor_learning_rate
    assert agent.update.learning_rate == LinearDecay(rate, 300)
    cost = {"entropy_cost": LinearDecay(0.01, 70)} if hasattr(config, "entropy_cost") else {}
    assert agent.update.scheduled == cost
    if hasattr(config, "epsilon_decay_steps"):
        exploring = dataclasses.replace(config, epsilon_decay_steps=9).build(spec)
        assert (agent.exploration_decay_steps, exploring.exploration_decay_steps) == (0, 9)
