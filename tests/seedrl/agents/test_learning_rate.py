"""The learning rate that is shown is the one that is taken, and to show it changes nothing."""

import dataclasses
import functools
from typing import Any

import jax
import numpy as np
import pytest

from seedrl.agents.apex.config import ApexConfig
from seedrl.agents.gradient_update import no_metrics
from seedrl.agents.impala import ImpalaConfig
from seedrl.agents.ppo.config import PpoConfig
from seedrl.agents.r2d2 import R2D2Config
from seedrl.networks.config import QNetworkConfig
from seedrl.types import Sequence, StepType, StoredStep, TimeStep
from tests.seedrl.agents.actor_critics import PLAIN_NETWORK, PLAIN_SPEC
from tests.seedrl.random_parameters import random_parameters

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
        shown = decaying.optimizer_metrics(state)["learning_rate"]
        delta, state = decaying.optimizer.update(gradient, state, gradient)
        assert constant.optimizer_metrics(other) == {}
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


def test_an_update_emits_its_rate_and_parameters_are_the_same_to_the_bit() -> None:
    agent = _IMPALA.build(PLAIN_SPEC)
    random = np.random.default_rng(3)
    types = np.full((6, 2), StepType.MID, np.uint8)
    reward, observation = (random.normal(size=shape) for shape in ((6, 2), (6, 2, 1)))
    timestep = TimeStep(types, np.float32(reward), np.ones((6, 2), np.float32), observation)
    timestep = timestep._replace(observation=np.float32(observation))
    steps = StoredStep(timestep, np.zeros((6, 2), np.int32), (), np.full((6, 2), -0.7, np.float32))
    update: Any = agent.update
    found, start = [], jax.jit(agent.init_state)(random_parameters(agent.init))
    sequence, weights = Sequence(steps, agent.initial_carry(2)), np.ones(2, np.float32)
    for each in (update, update._replace(optimizer_metrics=no_metrics)):
        step = jax.jit(functools.partial(each, mean=lambda tree: tree))
        state, rates = start, []
        for _ in range(3):
            state, output = step(state, sequence, weights, jax.random.key(1))
            rates.append(output.metrics.get("learning_rate"))
        found.append((jax.device_get(state), rates))
    (with_metric, rates), (without, none) = found
    assert ([float(rate) for rate in rates], none) == ([1.0, 0.5, 0.0], [None] * 3)
    jax.tree.map(np.testing.assert_array_equal, with_metric, without)
