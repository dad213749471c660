"""IMPALA: the loss sees what acting did, is that of the paper, and values what it should."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedrl.agents.impala import ImpalaConfig
from seedrl.rl.vtrace import VTrace, vtrace
from tests.seedrl.agents import policy_loops
from tests.seedrl.agents.actor_critics import (
    LAST,
    ROWS,
    SETTINGS,
    SPEC,
    B,
    built,
    loss_at_start,
    of_another_policy,
    outputs_at,
    random_timesteps,
    window_at,
)
from tests.seedrl.networks.decoder_oracle import log_softmax

CONFIG = ImpalaConfig(**SETTINGS, vtrace_lambda=0.8, rho_bar=1.2)
KEY = jax.random.key(9)
WEIGHTS = np.array([1.0, 0.25, 0.5], np.float32)


STARTS = range(0, ROWS - CONFIG.window.length + 1, 3)


def test_exploration_of_one_draws_from_the_policy_and_of_none_takes_the_likeliest() -> None:
    agent, params = built(CONFIG)
    timestep = jax.tree.map(lambda leaf: leaf[2], random_timesteps())
    carry, acts = agent.initial_carry(B), jax.vmap(agent.act, (None, None, None, None, 0))
    keys = jax.random.split(jax.random.key(1), 4000)
    drawn, greedy = (
        jax.device_get(acts(params, carry, timestep, np.full(B, exploration, np.float32), keys))
        for exploration in (1, 0)
    )
    for stream in range(B):
        share = np.bincount(drawn.action[:, stream], minlength=3) / len(keys)
        seen = {
            int(action): float(np.exp(log))
            for action, log in zip(drawn.action[:, stream], drawn.extras[:, stream], strict=True)
        }
        np.testing.assert_allclose(share, [seen[action] for action in range(3)], atol=0.03)
        assert set(greedy.action[:, stream].tolist()) == {max(seen, key=seen.__getitem__)}
    np.testing.assert_array_equal(drawn.carry.previous_action, drawn.action)
    assert (agent.exploration(3) == 1).all()
    assert agent.evaluation_exploration == 0


@pytest.mark.parametrize("start", STARTS)
def test_the_loss_agrees_with_the_loop(start: int) -> None:
    agent, params = built(CONFIG)
    sequence = of_another_policy(window_at(CONFIG, start), 1.0)
    (loss, output), _ = agent.update.loss(params, (), sequence, WEIGHTS, KEY)
    logits, values = outputs_at(CONFIG, start)
    log_policy = log_softmax(logits)
    expected = policy_loops.impala(CONFIG, log_policy, values, sequence, WEIGHTS)
    np.testing.assert_allclose(loss, expected.loss, rtol=1e-4)
    assert all(np.isfinite(value) for value in output.metrics.values())
    assert float(output.metrics["behaviour_kl"]) > 0.1
    assert 0 < float(output.metrics["ratio_clipped_fraction"]) < 1
    # The mean over trained time steps: LAST is no part of it.
    entropies = -np.sum(np.exp(log_policy) * log_policy, axis=-1)[: CONFIG.unroll]
    is_trained = sequence.steps.timestep.step_type[: CONFIG.unroll] != LAST
    np.testing.assert_allclose(output.metrics["entropy"], entropies[is_trained].mean(), rtol=1e-4)
    assert output.priorities == ()


def test_another_correction_takes_the_place_of_v_trace() -> None:
    def none(log_ratios: Any, *arguments: Any, **settings: Any) -> VTrace:
        return vtrace(jnp.zeros_like(log_ratios), *arguments, **settings)

    agent, params = built(CONFIG)
    on_policy = window_at(CONFIG, 0)
    (expected, _), _ = agent.update.loss(params, (), on_policy, WEIGHTS, KEY)
    loss = jax.jit(functools.partial(loss_at_start(CONFIG.build(SPEC)), correct=none))
    uncorrected, _ = loss(params, (), of_another_policy(on_policy, 1.0), WEIGHTS, KEY)
    np.testing.assert_allclose(uncorrected, expected, rtol=1e-5)
