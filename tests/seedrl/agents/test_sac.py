"""SAC: its losses and their gradients written out again, its memory, where values converge."""

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedrl.agents.agent import Agent, AgentState
from seedrl.agents.check import build_agent
from seedrl.agents.inputs import AgentCarry
from seedrl.agents.sac import SacConfig, SacParams
from seedrl.specs import ArraySpec, BoxSpec, EnvSpec
from seedrl.types import Sequence, StepType, StoredStep, TimeStep
from tests.seedrl.agents.linear_network import LinearConfig
from tests.seedrl.agents.sac_loops import looped, memories, policy_of, slope_by_differences
from tests.seedrl.random_parameters import random_parameters

FIRST, MID, LAST = StepType.FIRST, StepType.MID, StepType.LAST
SPEC = EnvSpec(ArraySpec((3,), "float32"), BoxSpec((2, 1), (-2.0, 0.0), (2.0, 4.0)))
CONFIG = SacConfig(
    network=LinearConfig(memory_size=2), burn_in=2, unroll=3, gamma=0.9, initial_temperature=0.3
)
B, T = 5, CONFIG.window.length
KEY = jax.random.key(4)
WEIGHTS = np.array([1.0, 0.25, 0.5, 1.0, 0.75], np.float32)


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
    """Six rows, two of burn-in: ends in the burn-in, across its edge, behind it, and at last."""
    random = np.random.default_rng(3)
    types = np.full((T, B), MID, np.uint8)
    types[0:2, 0] = types[1:3, 1] = types[3:5, 2] = LAST, FIRST
    types[0, 3], types[5, 3] = FIRST, LAST
    discount = np.ones((T, B), np.float32)
    discount[1, 1] = discount[5, 3] = 0
    reward = np.where(types == FIRST, 0, random.normal(size=(T, B))).astype(np.float32)
    observation = random.normal(size=(T, B, 3)).astype(np.float32)
    action = random.uniform(-1, 1, (T, B, 2, 1)).astype(np.float32)
    carry = AgentCarry(
        random.normal(size=(B, 2)).astype(np.float32),
        random.uniform(-1, 1, (B, 2, 1)).astype(np.float32),
    )
    steps = StoredStep(TimeStep(types, reward, discount, observation), action, types * 0, ())
    return Sequence(steps, carry)


def test_losses_and_priorities_agree_with_the_loop() -> None:
    _, params, target, loss = built()
    (total, output), _ = loss(params, target, batch(), WEIGHTS, KEY)
    expected = looped(CONFIG, params, target, batch(), WEIGHTS, KEY, params)
    np.testing.assert_allclose(output.metrics["critic_loss"], expected.critic, rtol=1e-4)
    np.testing.assert_allclose(output.metrics["actor_loss"], expected.actor, rtol=1e-4)
    np.testing.assert_allclose(output.metrics["temperature_loss"], expected.temperature, rtol=1e-4)
    np.testing.assert_allclose(total, sum(expected[:3]), rtol=1e-4)
    np.testing.assert_allclose(output.priorities, expected.priorities, rtol=1e-4)
    assert float(output.metrics["trained_fraction"]) == pytest.approx(14 / 15)


@pytest.mark.parametrize("part", ["critics", "actor", "log_temperature"])
def test_the_critics_alone_move_the_memory_and_not_through_the_burn_in(part: str) -> None:
    """The gradient of each part against differences of the loops, in which all else is held."""
    _, params, target, loss = built()
    arguments = (params, target, batch(), WEIGHTS, KEY)
    _, gradient = loss(*arguments)
    expected = sum(float(np.sum(np.abs(leaf))) for leaf in jax.tree.leaves(getattr(gradient, part)))
    assert expected > 1e-3
    slope = slope_by_differences(CONFIG, part, gradient, arguments)
    assert slope == pytest.approx(expected, rel=1e-3)
    assert np.min(np.abs(gradient.critics.memory["B"])) > 1e-3


def test_acting_row_by_row_gives_the_carry_and_the_policy_of_the_whole_sequence() -> None:
    agent, params, _, _ = built()
    sequence = batch()
    remembered = memories(params.critics.memory, params.critics.memory, 0, sequence)
    act, carry = jax.jit(agent.act), sequence.carry
    for t in range(T):
        row = jax.tree.map(lambda leaf, t=t: leaf[t], sequence.steps)
        quiet = np.zeros(B, np.float32)
        output = act(agent.actor_params(params), carry, row.timestep, quiet, KEY)
        np.testing.assert_allclose(output.carry.network, remembered[t], rtol=1e-4, atol=1e-6)
        noisy = act(agent.actor_params(params), carry, row.timestep, quiet + 1, KEY)
        np.testing.assert_array_equal(noisy.carry.previous_action, noisy.action)
        assert np.mean(np.abs(noisy.action - output.action)) > 1e-2
        for b in range(B):
            seen = np.concatenate([row.timestep.observation[b], remembered[t, b]])
            mean, _ = policy_of(params.actor, seen)
            np.testing.assert_allclose(output.action[b].ravel(), np.tanh(mean), rtol=1e-4)
        carry = output.carry._replace(previous_action=row.action)  # what the sequence has done


def test_sequences_of_which_nothing_is_trained_have_priority_0() -> None:
    steps = batch().steps
    types = np.full((T, B), MID, np.uint8)
    types[2:5, 0] = types[:2, 1] = LAST
    steps = steps._replace(timestep=steps.timestep._replace(step_type=types, observation=()))
    assert built().agent.initial_priorities(steps).tolist() == [0, -1, -1, -1, -1]


def test_nothing_of_a_last_step_or_of_what_follows_a_termination_matters() -> None:
    """What was done on LAST, and the reward of the FIRST after it."""
    _, params, target, loss = built()
    (total, _), gradient = loss(params, target, batch(), WEIGHTS, KEY)
    steps = batch().steps
    step_type, reward = steps.timestep[:2]
    action = np.where(step_type[..., None, None] == LAST, np.float32(0.99), steps.action)
    poisoned = steps.timestep._replace(reward=np.where(step_type == FIRST, 1e6, reward))
    other = batch()._replace(steps=steps._replace(action=action, timestep=poisoned))
    (with_other, _), its_gradient = loss(params, target, other, WEIGHTS, KEY)
    assert float(total) == float(with_other)
    jax.tree.map(np.testing.assert_array_equal, gradient, its_gradient)


def test_target_critics_go_a_part_of_the_way() -> None:
    update: Any = dataclasses.replace(CONFIG, tau=0.25).build(SPEC).update
    params, target = built().params, built().target
    found = update.update_target(params, target, 1)
    want = jax.tree.map(lambda new, old: 0.25 * new + 0.75 * old, params.critics, target)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-6), found, want)


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
    agent = build_agent(dataclasses.replace(CONFIG, network=LinearConfig(), burn_in=0), SPEC)
    params = random_parameters(agent.init)
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
    assert explored.shape == (3000, 2, 1)
    mean, log_std = policy_of(params.actor, observation[0].astype(np.float64))
    np.testing.assert_allclose(evaluated[0].ravel(), np.tanh(mean), rtol=1e-5)
    np.testing.assert_array_equal(evaluated, np.broadcast_to(evaluated[0], evaluated.shape))
    u = np.arctanh(np.clip(explored.reshape(3000, 2), -1 + 1e-7, 1 - 1e-7))
    np.testing.assert_allclose(u.mean(0), mean, atol=0.1 * np.exp(log_std).max())
    np.testing.assert_allclose(u.std(0), np.exp(log_std), rtol=0.06)
