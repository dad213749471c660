"""IMPALA: the loss sees what acting did, is that of the paper, and values what it should."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedrl.agents.agent import Agent
from seedrl.agents.impala import ImpalaConfig
from seedrl.agents.network_inputs import inputs_of_sequence
from seedrl.agents.window import WindowSpec
from seedrl.errors import ConfigError
from seedrl.networks.actor_critic import ActorCriticConfig
from seedrl.specs import ArraySpec, BoxSpec, DiscreteSpec, EnvSpec
from seedrl.types import Sequence, StepType, StoredStep, TimeStep

FIRST, MID, LAST = StepType.FIRST, StepType.MID, StepType.LAST
SPEC = EnvSpec(
    {"image": ArraySpec((3, 3), "uint8"), "speed": ArraySpec((2,), "float32")}, DiscreteSpec(3)
)
NETWORK = ActorCriticConfig(
    torso="mlp", torso_sizes=(6,), core_size=5, head_sizes=(4,), frame_stack=3
)
CONFIG = ImpalaConfig(
    network=NETWORK,
    unroll=6,
    gamma=0.9,
    trace_lambda=0.8,
    rho_bar=1.2,
    entropy_cost=0.03,
    reward_scale=2.0,
    reward_clip=1.0,
)
ROWS, B = 14, 3
KEY = jax.random.key(9)
WEIGHTS = np.array([1.0, 0.25, 0.5], np.float32)


@functools.cache
def built(config: ImpalaConfig = CONFIG) -> tuple[Agent, Any]:
    """The agent with jitted functions, and parameters whose policy is far from uniform."""
    agent = config.build(SPEC)
    loss_and_gradient = jax.jit(jax.value_and_grad(agent.update.loss, has_aux=True))
    agent = agent._replace(
        act=jax.jit(agent.act), update=agent.update._replace(loss=loss_and_gradient)
    )
    params = jax.jit(agent.init)(jax.random.key(0))
    policy = params["params"]["PolicyAndValueHead_0"]["policy"]
    policy["kernel"] = 100 * policy["kernel"]
    return agent, params


def random_timesteps() -> TimeStep:
    """Three streams: episodes that terminate and are truncated, and one that never ends."""
    random = np.random.default_rng(5)
    types = np.full((ROWS, B), MID, np.uint8)
    types[0] = FIRST
    discount = np.ones((ROWS, B), np.float32)
    for row, stream, is_terminated in ((4, 0, True), (9, 0, False), (6, 1, False)):
        types[row : row + 2, stream] = [LAST, FIRST]
        discount[row, stream] = 1 - is_terminated
    reward = np.where(types == FIRST, 0, random.normal(size=types.shape)).astype(np.float32)
    observation = {
        "image": random.integers(0, 256, (ROWS, B, 3, 3), dtype=np.uint8),
        "speed": random.normal(size=(ROWS, B, 2)).astype(np.float32),
    }
    return TimeStep(types, reward, discount, observation)


@functools.cache
def acted() -> tuple[StoredStep, list[Any]]:
    """A stream acted on step by step, and the carry before every row."""
    agent, params = built()
    timesteps = random_timesteps()
    carry, carries, actions, extras = agent.initial_carry(B), [], [], []
    for row in range(ROWS):
        carries.append(carry)
        timestep = jax.tree.map(lambda leaf, row=row: leaf[row], timesteps)
        output = agent.act(params, carry, timestep, jnp.ones(B), jax.random.key(row))
        carry = output.carry
        actions.append(output.action)
        extras.append(output.extras)
    versions = np.zeros((ROWS, B), np.int32)
    return StoredStep(timesteps, np.stack(actions), versions, np.stack(extras)), carries


def window_at(start: int) -> Sequence:
    steps, carries = acted()
    rows = slice(start, start + CONFIG.window.length)
    return Sequence(jax.tree.map(lambda leaf: leaf[rows], steps), carries[start])


@functools.cache
def outputs_at(start: int) -> Any:
    """What the network says of all rows of a window, float64."""
    _, params = built()
    network, sequence = NETWORK.build(SPEC), window_at(start)
    output, _ = jax.jit(network.unroll)(
        params, sequence.carry.network, inputs_of_sequence(sequence)
    )
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), output)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def test_sequences_follow_each_other_without_a_shared_row() -> None:
    assert ImpalaConfig(unroll=20).window == WindowSpec(0, 20, 1, 21)


STARTS = range(0, ROWS - CONFIG.window.length + 1, 3)


@pytest.mark.parametrize("start", STARTS)
def test_with_unchanged_parameters_every_ratio_is_one(start: int) -> None:
    """Recurrent, with stacked frames, across resets: what is stored is log π of what was done."""
    agent, params = built()
    (_, output), _ = agent.update.loss(params, (), window_at(start), WEIGHTS, KEY)
    assert float(output.metrics["ratio_max"]) == pytest.approx(1, abs=1e-5)
    sequence = window_at(start)
    log_policy = log_softmax(outputs_at(start).logits)
    expected = np.take_along_axis(log_policy, sequence.steps.action[..., None], -1)[..., 0]
    np.testing.assert_allclose(np.exp(expected - sequence.steps.extras), 1, atol=1e-5)
    # Another action's would be noticed.
    assert np.std(log_policy, axis=-1).min() > 1e-3


def test_exploration_of_one_draws_from_the_policy_and_of_none_takes_the_likeliest() -> None:
    agent, params = built()
    timestep = jax.tree.map(lambda leaf: leaf[2], random_timesteps())
    carry, acts = agent.initial_carry(B), jax.vmap(agent.act, (None, None, None, None, 0))
    keys = jax.random.split(jax.random.key(1), 4000)
    drawn = acts(params, carry, timestep, jnp.ones(B), keys)
    greedy = acts(params, carry, timestep, jnp.zeros(B), keys[:5])
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


def looped_loss(start: int, sequence: Sequence, params_changed: float = 0.0) -> float:
    """The loss written out in float64 from the network's outputs, row by row."""
    logits, value = outputs_at(start)
    log_policy, steps, c = log_softmax(logits), sequence.steps, CONFIG
    unroll, total = c.unroll, 0.0
    step_type, reward, discount, _ = steps.timestep
    reward = np.clip(2.0 * reward.astype(np.float64), -1, 1)
    for b in range(B):
        corrected = np.zeros(unroll + 1)  # v - V
        for t in reversed(range(unroll)):
            if step_type[t, b] == LAST:
                continue
            log_pi = log_policy[t, b, steps.action[t, b]]
            ratio = np.exp(log_pi - float(steps.extras[t, b]))
            ahead = c.gamma * float(discount[t + 1, b])
            delta = reward[t + 1, b] + ahead * value[t + 1, b] - value[t, b]
            carried = ahead * corrected[t + 1]
            corrected[t] = min(c.rho_bar, ratio) * delta + c.trace_lambda * min(1, ratio) * carried
            advantage = min(1, ratio) * (delta + c.trace_lambda * carried)
            entropy = -np.sum(np.exp(log_policy[t, b]) * log_policy[t, b])
            row = -log_pi * advantage + 0.5 * 0.5 * corrected[t] ** 2 - c.entropy_cost * entropy
            total += float(WEIGHTS[b]) * row
    return total / (unroll * B)


def of_another_policy(sequence: Sequence) -> Sequence:
    """As if a policy had acted that thought otherwise of each action."""
    random = np.random.default_rng(2)
    extras = sequence.steps.extras + random.normal(size=sequence.steps.extras.shape)
    return sequence._replace(steps=sequence.steps._replace(extras=extras.astype(np.float32)))


@pytest.mark.parametrize("start", STARTS)
def test_the_loss_agrees_with_the_loop(start: int) -> None:
    agent, params = built()
    sequence = of_another_policy(window_at(start))
    (loss, output), _ = agent.update.loss(params, (), sequence, WEIGHTS, KEY)
    np.testing.assert_allclose(loss, looped_loss(start, sequence), rtol=1e-4)
    assert all(np.isfinite(value) for value in output.metrics.values())
    assert float(output.metrics["behaviour_kl"]) > 0.1
    assert 0 < float(output.metrics["ratio_clipped_fraction"]) < 1
    assert output.priorities == ()


def test_what_must_be_ignored_may_be_anything() -> None:
    """The reward of a FIRST row and of row 0, the action and its probability on a LAST row."""
    agent, params = built()
    sequence = window_at(3)
    timestep, steps = sequence.steps.timestep, sequence.steps
    types = timestep.step_type
    assert (types[: CONFIG.unroll] == LAST).any()
    clean = agent.update.loss(params, (), sequence, WEIGHTS, KEY)
    ignored = types == LAST
    ignored[CONFIG.unroll] = True  # the row that only bootstraps
    poisoned = sequence._replace(
        steps=steps._replace(
            timestep=timestep._replace(reward=np.where(types == FIRST, 1e9, timestep.reward)),
            action=np.where(ignored, (steps.action + 1) % 3, steps.action),
            extras=np.where(ignored, np.float32(-80), steps.extras),
        )
    )
    found = agent.update.loss(params, (), poisoned, WEIGHTS, KEY)
    jax.tree.map(np.testing.assert_array_equal, found, clean)


@pytest.mark.parametrize(
    ("last_discount", "expected"),
    # V of an episode of two steps that looks the same throughout: if it terminates, 1 + .9 and 1
    # in equal parts; if it is truncated, 1 + .9 V.
    [(0.0, 1.45), (1.0, 10.0)],
)
def test_truncated_and_terminated_twins_have_their_different_values(
    last_discount: float, expected: float
) -> None:
    spec = EnvSpec(ArraySpec((1,), "float32"), DiscreteSpec(2))
    config = ImpalaConfig(
        network=ActorCriticConfig(torso="mlp", torso_sizes=(), core="none", head_sizes=()),
        unroll=5,
        gamma=0.9,
        learning_rate=0.1,
        learning_rate_decay_updates=400,
        adam_b1=0.9,
    )
    agent = config.build(spec)
    types = np.array([FIRST, MID, LAST] * 2, np.uint8)[:, None]
    discount = np.where(types == LAST, last_discount, 1).astype(np.float32)
    reward = np.where(types == FIRST, 0, 1).astype(np.float32)
    timestep = TimeStep(types, reward, discount, np.ones((6, 1, 1), np.float32))

    def update(state: Any, key: Any) -> Any:
        row = jax.tree.map(lambda leaf: leaf[0], timestep)
        carry = agent.initial_carry(1)
        # Without a core and with one observation, every row is acted on alike.
        action, _, extras = agent.act(state.params, carry, row, jnp.ones(1), key)
        steps = StoredStep(timestep, jnp.stack([action] * 6), (), jnp.stack([extras] * 6))
        state, output = agent.update(
            state, Sequence(steps, carry), jnp.ones(1), key, mean=lambda tree: tree
        )
        return state._replace(updates=state.updates + 1), output.metrics["value_mean"]

    state = agent.init_state(agent.init(jax.random.key(0)))
    keys = jax.random.split(jax.random.key(1), 400)
    _, values = jax.jit(lambda state: jax.lax.scan(update, state, keys))(state)
    assert float(values[-1]) == pytest.approx(expected, rel=1e-2)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("gamma", 1.5, "agent.gamma: expected 0 to 1, got 1.5"),
        ("reward_scale", 0.0, "agent.reward_scale: expected more than 0, got 0.0"),
        ("adam_b1", 1.0, "agent.adam_b1: expected 0 to 0.99999, got 1.0"),
        ("correction", "both", "agent.correction: expected Literal.*, got 'both'"),
    ],
)
def test_a_setting_that_cannot_work_is_refused(field: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(CONFIG, **{field: value})


def test_a_box_of_actions_is_refused_in_one_line() -> None:
    spec = EnvSpec(ArraySpec((1,), "float32"), BoxSpec((2,), (-1, -1), (1, 1)))
    with pytest.raises(ConfigError, match=r"IMPALA chooses among discrete actions.*\[2\]"):
        CONFIG.build(spec)
