"""PPO: the loss sees what acting did, is that of the paper, and values what it should."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from learner.acting.act_step import example_page
from seedrl.agents.agent import AgentState
from seedrl.agents.check import build_agent
from seedrl.agents.gradient_update import GradientUpdate
from seedrl.agents.inputs import inputs_of_sequence
from seedrl.agents.ppo import PpoConfig
from seedrl.specs import BoxSpec
from seedrl.types import Sequence
from tests.seedrl.agents import policy_loops
from tests.seedrl.agents.actor_critics import (
    NETWORK,
    ROWS,
    SETTINGS,
    SPEC,
    B,
    acted,
    built,
    jitted,
    loss_at_start,
    of_another_policy,
    outputs_at,
    window_at,
    window_of,
)
from tests.seedrl.networks.decoder_oracle import log_softmax

CONFIG = PpoConfig(**SETTINGS, gae_lambda=0.8)
KEY = jax.random.key(9)
WEIGHTS = np.array([1.0, 0.25, 0.5], np.float32)
STARTS = range(0, ROWS - CONFIG.window.length + 1, 3)


def loss_of(sequence: Sequence, params: Any = None) -> Any:
    """Of a batch that was made ready before anything was learned from it."""
    agent, own = built(CONFIG)
    update: Any = agent.update
    batch = agent.preprocess_batch(_state_of(own), sequence, WEIGHTS)
    return update.loss(own if params is None else params, (), *batch, KEY)


@pytest.mark.parametrize("start", STARTS)
def test_with_unchanged_parameters_every_ratio_is_one_and_every_value_as_stored(start: int) -> None:
    """Recurrent, with stacked frames, across resets, from the stored carry."""
    sequence = window_at(CONFIG, start)
    (_, output), _ = loss_of(sequence)
    assert float(output.metrics["ratio_max"]) == pytest.approx(1, abs=1e-5)
    assert float(output.metrics["behaviour_kl"]) == pytest.approx(0, abs=1e-6)
    assert float(output.metrics["clip_fraction"]) == 0
    logits, values = outputs_at(CONFIG, start)
    log_policy = log_softmax(logits)
    expected = np.take_along_axis(log_policy, sequence.steps.action[..., None], -1)[..., 0]
    np.testing.assert_allclose(
        np.exp(expected - sequence.steps.extras.log_probability), 1, atol=1e-5
    )
    np.testing.assert_allclose(sequence.steps.extras.value, values, atol=1e-5)


def looped_loss(start: int, sequence: Sequence) -> float:
    """From the network's outputs."""
    logits, values = outputs_at(CONFIG, start)
    return policy_loops.ppo(CONFIG, log_softmax(logits), values, sequence, WEIGHTS).loss


@pytest.mark.parametrize("start", STARTS)
def test_the_loss_agrees_with_the_loop(start: int) -> None:
    sequence = of_another_policy(window_at(CONFIG, start), 0.4)
    (loss, output), _ = loss_of(sequence)
    np.testing.assert_allclose(loss, looped_loss(start, sequence), rtol=1e-4)
    assert all(np.isfinite(value) for value in output.metrics.values())
    assert 0 < float(output.metrics["clip_fraction"]) < 1
    assert float(output.metrics["behaviour_kl"]) > 0.01
    assert output.priorities == ()


def test_nothing_is_learned_from_a_sequence_of_weight_0() -> None:
    """It fills up a batch; nor are the advantages of the others normalized by its own."""
    agent, params = built(CONFIG)
    sequence = of_another_policy(window_at(CONFIG, 3), 0.4)

    def learned(factor: float) -> Any:
        steps = sequence.steps
        reward = np.array(steps.timestep.reward)
        reward[:, 2] *= factor
        steps = steps._replace(timestep=steps.timestep._replace(reward=reward))
        weights = np.float32([1.5, 1.5, 0.0])
        batch = agent.preprocess_batch(_state_of(params), sequence._replace(steps=steps), weights)
        (loss, _), gradients = agent.update.loss(params, (), *batch, KEY)
        return loss, gradients

    jax.tree.map(np.testing.assert_array_equal, learned(1.0), learned(-1.0))


@pytest.mark.parametrize("what", ["repeats", "last steps"])
def test_a_minibatch_of_which_nothing_is_trained_changes_nothing(what: str) -> None:
    """Adam has a direction by then, in which it would go on."""
    agent, (_, params) = CONFIG.build(SPEC), built(CONFIG)
    sequence = of_another_policy(window_at(CONFIG, 3), 0.4)
    batch, weights = agent.preprocess_batch(_state_of(params), sequence, WEIGHTS)
    update = jax.jit(lambda *learned: agent.update(*learned, KEY, mean=lambda tree: tree))
    state, _ = update(agent.init_state(params), batch, weights)
    if what == "repeats":
        weights = np.zeros_like(weights)
    else:
        extras = batch.steps.extras
        nothing = jax.tree.map(np.zeros_like, extras.estimated)
        batch = batch._replace(
            steps=batch.steps._replace(extras=extras._replace(estimated=nothing))
        )
    new, output = update(state, batch, weights)
    jax.tree.map(np.testing.assert_array_equal, new, state)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(output.guarded))


@pytest.mark.parametrize("chunk_steps", [pytest.param(1, marks=pytest.mark.gate), 3])
def test_the_loss_of_pieces_is_that_of_their_sequences(chunk_steps: int) -> None:
    """With memory, stacked frames and resets: their advantages, and their carry at each piece."""
    agent = dataclasses.replace(CONFIG, chunk_steps=chunk_steps).build(SPEC)
    assert agent.chunks == 6 // chunk_steps
    sequence, (_, params) = of_another_policy(window_at(CONFIG, 3), 0.4), built(CONFIG)
    loss_of_batch = loss_at_start(agent)

    @jax.jit
    def loss_of_pieces(params: Any, sequence: Sequence) -> jax.Array:
        batch = agent.preprocess_batch(_state_of(params), sequence, WEIGHTS)
        assert batch[0].steps.action.shape == (chunk_steps, 6 // chunk_steps * B)
        return loss_of_batch(params, (), *batch, KEY)[0]

    loss = loss_of_pieces(params, sequence)
    np.testing.assert_allclose(loss, looped_loss(3, sequence), rtol=1e-4)


def _state_of(params: Any) -> AgentState:
    return AgentState(params, (), (), jnp.int32(0))


def test_real_actions_have_the_density_of_what_was_drawn_with_memory_and_across_resets() -> None:
    """Stored as drawn, beyond the bounds too; the core sees them on the next row."""
    spec = dataclasses.replace(SPEC, action=BoxSpec((2, 1), (-1, 0), (1, 5)))
    page = example_page(build_agent(CONFIG, spec), spec, CONFIG.window.length)
    assert page.steps.action.shape == (CONFIG.window.length, 2, 1)
    agent, params = jitted(CONFIG.build(spec))
    sequence = window_of(acted(agent, params), 3, CONFIG.window.length)
    steps, update = sequence.steps, agent.update
    assert isinstance(update, GradientUpdate)
    batch = agent.preprocess_batch(_state_of(params), sequence, WEIGHTS)
    (loss, output), gradient = update.loss(params, (), *batch, KEY)
    assert steps.action.shape == (CONFIG.window.length, B, 2, 1)
    assert np.abs(steps.action).max() > 1
    assert np.isfinite(loss)
    assert float(output.metrics["ratio_max"]) == pytest.approx(1, abs=1e-5)
    assert float(output.metrics["behaviour_kl"]) == pytest.approx(0, abs=1e-6)
    said, _ = jax.jit(NETWORK.build(spec).unroll)(
        params, sequence.carry.network, inputs_of_sequence(sequence)
    )
    std = np.exp(np.asarray(said.log_std, np.float64))
    distance = (steps.action[..., 0] - np.asarray(said.mean, np.float64)) / std
    expected = np.sum(-0.5 * distance**2 - np.log(std * np.sqrt(2 * np.pi)), axis=-1)
    np.testing.assert_allclose(np.exp(expected - steps.extras.log_probability), 1, atol=1e-4)
    np.testing.assert_allclose(steps.extras.value, said.value, atol=1e-5)
    assert np.std(np.asarray(said.mean), axis=0).min() > 1e-3
    assert all(np.any(leaf) for leaf in jax.tree.leaves(jax.device_get(gradient)))
