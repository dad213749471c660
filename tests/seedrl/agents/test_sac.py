"""SAC: its losses and their gradients written out again, where values converge, and acting."""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedrl.agents.agent import Agent, AgentState
from seedrl.agents.check import build_agent
from seedrl.agents.sac import SacConfig, SacParams
from seedrl.specs import ArraySpec, BoxSpec, EnvSpec
from seedrl.types import Sequence, StepType, StoredStep, TimeStep
from tests.seedrl.agents.linear_network import LinearConfig
from tests.seedrl.agents.sac_loops import policy_of
from tests.seedrl.random_parameters import random_parameters

FIRST, MID, LAST = StepType.FIRST, StepType.MID, StepType.LAST
SHAPE = (2, 1)
SPEC = EnvSpec(ArraySpec((3,), "float32"), BoxSpec(SHAPE, (-2.0, 0.0), (2.0, 4.0)))
CONFIG = SacConfig(network=LinearConfig(), unroll=3, gamma=0.9, initial_temperature=0.3)
B, T = 5, CONFIG.window.length
KEY = jax.random.key(4)


class Built(NamedTuple):
    """An agent, its parameters and target, and its loss with gradients, compiled."""

    agent: Agent
    params: SacParams
    target: Any
    loss: Any


@functools.cache
def built() -> Built:
    agent = build_agent(CONFIG, SPEC)
    params, other = (random_parameters(agent.init, seed) for seed in (0, 1))
    log_temperature = jax.jit(lambda key: agent.init(key).log_temperature)(KEY)
    params = params._replace(log_temperature=log_temperature)
    update = CONFIG.build(SPEC).update
    loss = jax.jit(jax.value_and_grad(update.loss, has_aux=True))  # type: ignore[attr-defined]
    return Built(agent, params, other.critics, loss)


def batch() -> Sequence:
    """Sequences of 4 rows: two that end within, one that begins on LAST, one that ends on it."""
    random = np.random.default_rng(3)
    types = np.full((T, B), MID, np.uint8)
    types[1:3, 0] = types[1:3, 1] = types[0:2, 2] = LAST, FIRST
    types[3, 3] = LAST
    discount = np.ones((T, B), np.float32)
    discount[1, 0] = discount[3, 3] = 0
    reward = np.where(types == FIRST, 0, random.normal(size=(T, B))).astype(np.float32)
    observation = random.normal(size=(T, B, 3)).astype(np.float32)
    action = random.uniform(-1, 1, (T, B, *SHAPE)).astype(np.float32)
    steps = StoredStep(TimeStep(types, reward, discount, observation), action, types * 0, ())
    return Sequence(steps, ())


WEIGHTS = np.array([1.0, 0.25, 0.5, 1.0, 0.75], np.float32)


def test_a_policy_of_more_entropy_than_asked_for_lowers_the_temperature() -> None:
    # H - H̄ of the worked example: a mean log-probability of .5 and H̄ = -1 leave .5 > 0.
    _, params, target, loss = built()
    (_, output), gradient = loss(params, target, batch(), np.ones(B, np.float32), KEY)
    entropy = float(output.metrics["entropy"])
    assert entropy > -2.0
    share = float(output.metrics["trained_fraction"])
    assert float(gradient.log_temperature) == pytest.approx(share * (entropy + 2.0), rel=1e-5)


def test_nothing_of_a_last_row_or_of_what_follows_a_termination_matters() -> None:
    """What was done on LAST, the reward of the FIRST after it, and the end of a terminated one."""
    _, params, target, loss = built()
    (total, _), gradient = loss(params, target, batch(), WEIGHTS, KEY)
    steps = batch().steps
    action, reward = steps.action.copy(), steps.timestep.reward.copy()
    action[1, :2] = action[0, 2] = 0.99
    reward[2, :2] = reward[1, 2] = 1e6
    timestep = steps.timestep._replace(reward=reward)
    other = Sequence(steps._replace(action=action, timestep=timestep), ())
    (with_other, _), its_gradient = loss(params, target, other, WEIGHTS, KEY)
    assert float(total) == float(with_other)
    jax.tree.map(np.testing.assert_array_equal, gradient, its_gradient)


def test_truncated_and_terminated_twins_converge_to_their_values() -> None:
    """One observation, reward 1; the episode ends after each step.

    With the policy and α held: 1 if it is terminated, and if it is truncated the fixed point of
    Q = 1 + γ (Q + α H), that is (1 + γ α H) / (1 - γ), where H is the entropy of the policy.
    """
    gamma, alpha = 0.5, 0.4
    config = SacConfig(
        network=LinearConfig(),
        gamma=gamma,
        actor_learning_rate=1e-12,  # the policy stays as it is
        critic_learning_rate=0.02,
        temperature_learning_rate=0.0,
        initial_temperature=alpha,
        tau=0.2,
    )
    spec = EnvSpec(ArraySpec((1,), "float32"), BoxSpec((1,), (-1.0,), (1.0,)))
    agent, size = config.build(spec), 64
    types = np.array([[MID] * size, [LAST] * size], np.uint8)
    ones = np.ones((2, size), np.float32)
    first = random_parameters(agent.init)._replace(log_temperature=np.float32(math.log(alpha)))

    def learned(discount: jax.Array) -> tuple[SacParams, jax.Array]:
        timestep = TimeStep(types, ones, ones * discount, ones[..., None])

        def step(state: AgentState, key: jax.Array) -> tuple[AgentState, jax.Array]:
            action = jax.random.uniform(key, (2, size, 1), minval=-1.0)
            sequence = Sequence(StoredStep(timestep, action, types, ()), ())
            state, output = agent.update(state, sequence, ones[0], key, lambda tree: tree)
            return state, output.metrics["q_mean"]

        keys = jax.random.split(jax.random.key(1), 400)
        state, q_means = jax.lax.scan(step, agent.init_state(first), keys)
        return state.params, jnp.mean(q_means[-50:])

    params, values = jax.jit(jax.vmap(learned))(np.float32([0, 1]))
    held = jax.tree.map(lambda leaf: np.stack([leaf, leaf]), (first.actor, first.log_temperature))
    jax.tree.map(np.testing.assert_array_equal, (params.actor, params.log_temperature), held)
    (mean,), (log_std,) = policy_of(first.actor, np.ones(1))
    noise = np.linspace(-8, 8, 4001)
    u = mean + math.exp(log_std) * noise
    density = np.exp(-0.5 * noise**2) / math.sqrt(2 * math.pi)
    log_policy = np.log(density) - log_std + 2 * np.log(np.cosh(u))
    entropy = -float(np.trapezoid(density * log_policy, noise))
    expected = [1.0, (1 + gamma * alpha * entropy) / (1 - gamma)]
    np.testing.assert_allclose(values, expected, rtol=0.015)


def test_actions_are_drawn_from_the_policy_and_evaluation_takes_its_middle() -> None:
    agent, params, _, _ = built()
    observation = np.repeat(np.float32([[0.4, -1.0, 0.2]]), 3000, axis=0)
    column = np.ones(3000, np.float32)
    timestep = TimeStep(np.full(3000, MID, np.uint8), column, column, observation)
    assert agent.exploration(3).tolist() == [1, 1, 1]
    actor = agent.actor_params(params)
    act = jax.jit(agent.act)
    carry = agent.initial_carry(3000)
    explored = np.asarray(act(actor, carry, timestep, column, KEY).action, np.float64)
    quiet = column * agent.evaluation_exploration
    evaluated = np.asarray(act(actor, carry, timestep, quiet, KEY).action)
    assert explored.shape == (3000, *SHAPE)
    mean, log_std = policy_of(params.actor, observation[0].astype(np.float64))
    np.testing.assert_allclose(evaluated[0].ravel(), np.tanh(mean), rtol=1e-5)
    np.testing.assert_array_equal(evaluated, np.broadcast_to(evaluated[0], evaluated.shape))
    u = np.arctanh(np.clip(explored.reshape(3000, 2), -1 + 1e-7, 1 - 1e-7))
    np.testing.assert_allclose(u.mean(0), mean, atol=0.1 * np.exp(log_std).max())
    np.testing.assert_allclose(u.std(0), np.exp(log_std), rtol=0.06)
