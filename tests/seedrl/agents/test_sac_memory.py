"""Recurrent SAC: its memory, and what learns it, over sequences with ends inside."""

import functools
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from seedrl.agents.agent import Agent
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


def test_the_target_of_the_memory_follows_it() -> None:
    _, params, target, _ = built()
    update: Any = CONFIG.build(SPEC).update
    moved = jax.jit(update.update_target)(params, target, 1)
    expected = jax.tree.map(lambda new, old: old + 0.005 * (new - old), params.critics, target)
    jax.tree.map(lambda *both: np.testing.assert_allclose(*both, rtol=1e-5), moved, expected)


def test_a_worked_example_of_values_that_are_remembered() -> None:
    """m_t = o_t + m_(t-1) / 2 from a stored 4, and Q = m; of the target o_t + m_(t-1) / 4.

      row      burn-in   burn-in   1       2       3       4, LAST, truncated
      o        2         1         2       0       4       1
      m        4         3         3.5     1.75    4.875   3.4375
      target   3         1.75      2.4375  .609375 4.15234 2.03809
      r                                    1       2       3
      y                            1.30469 4.07617 4.01904     with γ = 1/2

    No entropy counts, and the rows 1 to 3 are trained.
    """
    _, params, _, loss = built()
    gamma = 0.5 / CONFIG.gamma  # the program has its own γ: discounts bring it to 1/2

    def remembering(decay: float) -> Any:
        memory = {"I": np.zeros((6, 2), np.float32), "B": np.zeros((2, 2), np.float32)}
        memory["I"][0, 0], memory["B"][0, 0] = 1, decay
        twins = np.zeros((2, 7), np.float32)
        twins[:, 3] = 1
        return params.critics._replace(memory=memory, twins=twins)

    types = np.full((T, B), MID, np.uint8)
    types[-1] = LAST
    column = np.ones((1, B), np.float32)
    reward = np.float32([[9], [9], [9], [1], [2], [3]]) * column
    observation = np.zeros((T, B, 3), np.float32)
    observation[..., 0] = np.float32([[2], [1], [2], [0], [4], [1]])
    steps = batch().steps._replace(
        timestep=TimeStep(types, reward, np.full((T, B), gamma, np.float32), observation)
    )
    carry = batch().carry._replace(network=np.full((B, 2), 4, np.float32))
    params = params._replace(critics=remembering(0.5), log_temperature=np.float32(-60))
    arguments = (Sequence(steps, carry), np.ones(B, np.float32), KEY)
    (_, output), _ = loss(params, remembering(0.25), *arguments)
    assert float(output.metrics["q_mean"]) == pytest.approx((3.5 + 1.75 + 4.875) / 3)
    expected = np.mean([1.3046875, 4.076171875, 4.01904296875])
    assert float(output.metrics["target_mean"]) == pytest.approx(expected, rel=1e-5)


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
