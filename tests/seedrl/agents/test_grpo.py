"""GRPO: loss and gradient against float64 numpy, what has none, what changes the state."""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedrl.agents import grpo
from seedrl.agents.grpo import GRPOConfig
from seedrl.agents.token_agent import ENVIRONMENT, PADDING, POLICY, TokenExtras, padding
from seedrl.networks import decoder
from seedrl.networks.decoder import DecoderConfig
from seedrl.rl import tokens
from seedrl.rl.distributions import Categorical
from seedrl.types import Sequence, StoredStep
from tests.seedrl.networks.decoder_oracle import float64, log_softmax, outputs, random_params

NETWORK = DecoderConfig(vocabulary=7, layers=1, width=8, heads=2, kv_heads=1, ffn=6, context=8)
CONFIG = GRPOConfig(
    network=NETWORK,
    group=3,
    advantage="grpo",
    temperature=0.8,
    clip_low=0.2,
    clip_high=0.3,
    ratio_cap=1.6,
    entropy=0.07,
    kl=0.2,
    train_truncated=False,
    max_gradient_norm=1e9,
)
B, T = 9, 8
log_policy_of = jax.jit(
    lambda network, params, ids: Categorical(
        decoder.unroll(network, params, ids[:, :-1]) / CONFIG.temperature
    ).log_probability(ids[:, 1:]),
    static_argnums=0,
)


class TokenBatch(NamedTuple):
    """B sequences of T tokens, apart from the form in which they are stored."""

    ids: Any  # `[B, T] int32`
    sources: Any
    log_mu: Any
    versions: Any
    returns: Any  # `[B] float32`
    truncated: Any  # `[B] bool`

    @property
    def steps(self) -> StoredStep:
        """As they are stored, with all reward on the last token."""
        first = padding(*self.ids.shape)
        rewards = jnp.asarray(first.timestep.reward).at[:, -1].set(self.returns)
        discounts = jnp.asarray(first.timestep.discount).at[:, -1].set(self.truncated)
        return first._replace(
            timestep=first.timestep._replace(reward=rewards, discount=discounts),
            action=self.ids,
            version=self.versions,
            extras=TokenExtras(self.sources, self.log_mu),
        )


@functools.partial(jax.jit, static_argnums=0)
def update(config: GRPOConfig, state: Any, batch: TokenBatch) -> Any:
    sequence: Any = Sequence(jax.tree.map(jnp.transpose, batch.steps), ())
    return grpo.update(config, state, sequence, (), (), lambda tree: tree)


def batch_of(config: GRPOConfig, params: Any, *, noise: float) -> TokenBatch:
    """Two turns of the environment and two of the policy, then padding; the last group is even."""
    random = np.random.default_rng(5)
    ids = random.integers(0, NETWORK.vocabulary, (B, T), np.int32)
    sources = np.full((B, T), POLICY, np.int32)
    sources[:, [0, 1, 4]] = ENVIRONMENT
    sources[::2, 7:] = PADDING
    sources[4, 6:] = PADDING
    log_mu = np.asarray(log_policy_of(config.network, params, ids)) + noise * random.normal(
        size=(B, T - 1)
    )
    log_mu = np.concatenate([np.full((B, 1), np.nan), log_mu], axis=1).astype(np.float32)
    # Of other tokens nothing is known.
    log_mu = np.where(sources == POLICY, log_mu, np.nan).astype(np.float32)
    returns = np.array([0, 1, 0.25, -1, 0, 3, 1, 1, 1], np.float32)
    truncated = np.arange(B) == 5
    return TokenBatch(ids, sources, log_mu, np.zeros((B, T), np.int32), returns, truncated)


class Oracle:
    """L as a function of parameters, and an L~ whose gradient is that which L should have."""

    def __init__(self, config: GRPOConfig, batch: TokenBatch, acting: Any, reference: Any):
        self.config, self.batch = config, batch
        self.log_reference = self._log_policies(float64(reference))[0]
        self.counted = batch.sources == POLICY
        if not config.train_truncated:
            self.counted &= ~batch.truncated[:, None]
        self.trained = self.counted
        if config.advantage == "gae":
            self._estimate(self._log_policies(float64(acting))[2])
            return
        self.trained = self.counted.copy()
        self.trained[6:] = False  # the group without spread
        groups = np.float64(batch.returns).reshape(-1, config.group)
        centred = groups - groups.mean(1, keepdims=True)
        std = centred.std(1, keepdims=True)
        each = (centred / np.where(std > 0, std, 1)).reshape(-1, 1)
        self.advantages = np.broadcast_to(each, (B, T))

    def _estimate(self, values: np.ndarray) -> None:
        self.advantages, self.targets = np.zeros((B, T)), np.zeros((B, T))
        for b in range(B):
            places = np.nonzero(self.batch.sources[b] == POLICY)[0]
            later = np.append(values[b, places[1:]], self.batch.returns[b])
            errors = later - values[b, places]
            for n, t in enumerate(places):
                decays = self.config.gae_lambda ** np.arange(len(places) - n)
                self.advantages[b, t] = decays @ errors[n:]
                self.targets[b, t] = self.advantages[b, t] + values[b, t]
        counted = self.advantages[self.trained]
        self.advantages = (self.advantages - counted.mean()) / counted.std()

    def _log_policies(self, params: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        # Of each token but the first, and the entropies and values before it, `[B, T]`.
        chosen, entropies, all_values = (np.zeros((B, T)) for _ in range(3))
        for b, ids in enumerate(self.batch.ids):
            logits, values = outputs(NETWORK, params, ids)
            all_values[b, 1:] = values[:-1]
            for t in range(1, T):
                log_policy = log_softmax(logits[t - 1] / self.config.temperature)
                chosen[b, t] = log_policy[ids[t]]
                entropies[b, t] = -np.exp(log_policy) @ log_policy
        return chosen, entropies, all_values

    def __call__(self, params: Any, weights: np.ndarray | None = None) -> tuple[float, np.ndarray]:
        """The loss, and the weight of each token's gradient; or L~ with such weights."""
        config, (log_policy, entropy, values) = self.config, self._log_policies(params)
        total, found = 0.0, np.zeros((B, T))
        for b, t in zip(*np.nonzero(self.trained), strict=True):
            advantage = self.advantages[b, t]
            ratio = np.exp(log_policy[b, t] - np.float64(self.batch.log_mu[b, t]))
            if advantage >= 0:
                gained = min(ratio, 1 + config.clip_high) * advantage
                found[b, t] = ratio if ratio <= 1 + config.clip_high else 0
            else:
                gained = max(min(ratio, config.ratio_cap), 1 - config.clip_low) * advantage
                found[b, t] = min(ratio, config.ratio_cap) if ratio >= 1 - config.clip_low else 0
            if weights is not None:
                gained = weights[b, t] * advantage * log_policy[b, t]
            total += -gained - config.entropy * entropy[b, t]
            if config.advantage == "gae":
                total += config.value_cost * 0.5 * (values[b, t] - self.targets[b, t]) ** 2
        reference = np.exp(self.log_reference - log_policy)[self.counted]
        divergence = reference - 1 - np.log(reference)
        return total / self.trained.sum() + config.kl * divergence.mean(), found


def started(config: GRPOConfig, seed: int = 0) -> Any:
    params = jax.tree.map(jnp.asarray, random_params(config.network, seed))
    return grpo.step_of(config).init_state(params)


@pytest.mark.parametrize("advantage", ["grpo", "gae"])
def test_loss_and_gradient_agree_with_numpy(advantage: Any) -> None:
    config = dataclasses.replace(
        CONFIG,
        advantage=advantage,
        gae_lambda=0.9,
        value_cost=0.3,
        train_truncated=advantage == "gae",
    )
    params, reference = random_params(NETWORK, 0), random_params(NETWORK, 1)
    batch = batch_of(config, params, noise=0.5)
    part: Any = (batch.steps, np.zeros(B, bool))

    @jax.jit
    def jitted_loss(params: Any, reference: Any) -> Any:
        return jax.value_and_grad(
            lambda params: grpo._loss(config, params, reference, part, (), ())[0]
        )(params)

    loss, gradient = jitted_loss(params, reference)
    oracle, exact = Oracle(config, batch, params, reference), float64(params)
    expected, weights = oracle(exact)
    assert float(loss) == pytest.approx(expected, abs=5e-6)
    # All cases occur: clipped on either side, capped, neither.
    counted = weights[oracle.trained]
    assert (counted == 0).sum() > 3 and (counted == CONFIG.ratio_cap).sum() > 1
    for seed in range(2):
        random = np.random.default_rng(seed)
        direction = jax.tree.map(lambda leaf, r=random: r.normal(size=leaf.shape), exact)
        ahead = oracle(jax.tree.map(lambda p, d: p + 1e-5 * d, exact, direction), weights)[0]
        behind = oracle(jax.tree.map(lambda p, d: p - 1e-5 * d, exact, direction), weights)[0]
        found = sum(
            np.vdot(np.float64(g), d)
            for g, d in zip(jax.tree.leaves(gradient), jax.tree.leaves(direction), strict=True)
        )
        assert found == pytest.approx((ahead - behind) / 2e-5, abs=2e-5)


def test_only_trained_tokens_of_the_policy_matter() -> None:
    state = started(CONFIG)
    batch = batch_of(CONFIG, state.params, noise=0.5)
    new, (metrics, *_) = update(CONFIG, state, batch)
    assert metrics["trained_tokens"] == batch_of_trained(batch).sum() == 21
    assert float(metrics["groups_with_spread"]) == pytest.approx(2 / 3)
    # What is not trained may be anything, and other ids after the last trained one, too.
    ids = np.where(batch.sources == PADDING, 3, batch.ids)
    ids[6:] = 2
    log_mu = np.where(batch_of_trained(batch), batch.log_mu, np.inf).astype(np.float32)
    other, _ = update(CONFIG, state, batch._replace(ids=ids, log_mu=log_mu))
    jax.tree.map(np.testing.assert_array_equal, new.params, other.params)


def batch_of_trained(batch: TokenBatch) -> np.ndarray:
    trained = (batch.sources == POLICY) & ~batch.truncated[:, None]
    trained[6:] = False
    return trained


@pytest.mark.parametrize("name", ["returns", "log_mu", "nothing"])
def test_what_is_not_finite_is_shown_and_nothing_to_learn_leaves_the_state(name: str) -> None:
    config = dataclasses.replace(CONFIG, kl=0.0)  # it is to be learned in any group
    state = started(config)
    batch = batch_of(config, state.params, noise=0.1)
    state, output = update(config, state, batch)  # Adam has a direction now
    state = state._replace(updates=state.updates + 1)  # as the learn step does
    assert np.isfinite(output.guarded).all()
    returns, log_mu = batch.returns.copy(), batch.log_mu.copy()
    if name == "returns":
        returns[0] = np.nan
    elif name == "log_mu":
        log_mu[0, 2] = np.nan
    else:
        returns[:] = 1
    new, output = update(config, state, batch._replace(returns=returns, log_mu=log_mu))
    # The learn step keeps the old state if one of these is not finite.
    assert np.isfinite(output.guarded).all() == (name == "nothing")
    if name == "nothing":
        jax.tree.map(np.testing.assert_array_equal, new, state)
        assert np.isnan(output.metrics["mismatch_kl"])  # of older parameters
        # Compared with the parameters that acted also if nothing is trained.
        versions = np.full_like(batch.versions, int(state.updates))
        batch = batch._replace(returns=returns, versions=versions)
        _, (metrics, *_) = update(config, state, batch)
        assert np.isnan(metrics["entropy"]) and metrics["trained_tokens"] == 0
        assert np.isfinite(metrics["mismatch_kl"])


def test_at_the_parameters_that_acted_every_ratio_is_one() -> None:
    state = started(CONFIG)
    batch = batch_of(CONFIG, state.params, noise=0.0)
    metrics = update(CONFIG, state, batch)[1].metrics
    assert float(metrics["mismatch_max"]) < 1e-5 and float(metrics["mismatch_kl"]) < 1e-6
    assert float(metrics["ratio_max"]) == pytest.approx(1, abs=1e-5)
    assert float(metrics["reference_kl"]) < 1e-6
    # Only of tokens of this version: the ratio of others is no mismatch.
    log_mu = batch.log_mu.copy()
    log_mu[3:] -= 1
    versions = np.where(np.arange(B)[:, None] < 3, 0, -1).astype(np.int32) * np.ones((1, T), int)
    old = batch._replace(log_mu=log_mu, versions=versions.astype(np.int32))
    metrics = update(CONFIG, state, old)[1].metrics
    assert float(metrics["mismatch_max"]) < 1e-5
    assert float(metrics["ratio_max"]) == pytest.approx(np.e, rel=1e-4)


def test_the_learning_rate_rises_over_the_first_updates() -> None:
    params = {"weight": jnp.ones(3)}
    for warmup, rises in ((0, [1, 1, 1, 1, 1]), (4, [0.25, 0.5, 0.75, 1, 1])):
        optimizer = grpo.step_of(dataclasses.replace(CONFIG, warmup_updates=warmup)).optimizer
        state, steps, step = optimizer.init(params), [], jax.jit(optimizer.update)
        for _ in rises:
            # Of equal gradients Adam's steps are as long as its rate.
            deltas, state = step(params, state, params)
            steps.append(-float(deltas["weight"][0]))
        np.testing.assert_allclose(steps, CONFIG.learning_rate * np.array(rises), rtol=1e-3)


@pytest.mark.gate  # of pretraining: tests/learner/test_pretraining.py
def test_an_update_of_lora_changes_lora_only() -> None:
    network = dataclasses.replace(NETWORK, lora_rank=2)
    config = dataclasses.replace(CONFIG, network=network, train_truncated=True)
    state = started(config)
    assert state.target == ()  # the reference is the same tree without LoRA
    new, (metrics, *_) = update(config, state, batch_of(config, state.params, noise=0.3))
    assert float(metrics["reference_kl"]) > 1e-3 and metrics["trained_tokens"] == 26
    for (path, before), after in zip(
        jax.tree.leaves_with_path(state.params), jax.tree.leaves(new.params), strict=True
    ):
        is_lora = path[-1].key.startswith("lora")
        assert np.array_equal(before, after) != is_lora, path
    moments = [leaf for leaf in jax.tree.leaves(new.optimizer) if leaf.ndim > 1]
    assert {leaf.shape[-1] for leaf in moments} <= {2, 4, 6, 8, 1}
    frozen = sum(leaf.size for leaf in jax.tree.leaves(state.params["embedding"]))
    assert all(leaf.size != frozen for leaf in moments)


@pytest.mark.gate  # loss and gradient: above; a whole run: tests/system/test_tokens.py
def test_it_learns_to_copy() -> None:
    """One token is asked and one answered: within 60 updates nine of ten answers are right."""
    config = GRPOConfig(network=NETWORK, group=8, learning_rate=0.03, max_gradient_norm=1.0)
    num_questions = NETWORK.vocabulary

    def one_update(state: Any, key: Any) -> Any:
        asked = jnp.repeat(jnp.arange(num_questions, dtype=jnp.int32), config.group)
        logits = decoder.unroll(NETWORK, state.params, asked[:, None])[:, 0]
        answers, log_mu = tokens.sample(key, logits, 1.0)
        sources = jnp.broadcast_to(jnp.array([[ENVIRONMENT, POLICY]], jnp.int32), (len(asked), 2))
        batch = TokenBatch(
            ids=jnp.stack([asked, answers], axis=1),
            sources=sources,
            log_mu=jnp.stack([jnp.zeros_like(log_mu), log_mu], axis=1),
            versions=jnp.broadcast_to(state.updates, sources.shape),
            returns=(answers == asked).astype(jnp.float32),
            truncated=jnp.zeros(len(asked), bool),
        )
        state, (metrics, *_) = update(config, state, batch)
        return state, (metrics["return_mean"], metrics["mismatch_max"])

    @jax.jit
    def trained(key: Any) -> Any:
        first, *keys = jax.random.split(key, 61)
        state = grpo.step_of(config).init_state(decoder.init(NETWORK, first))
        return jax.lax.scan(one_update, state, jnp.stack(keys))[1]

    returns, mismatches = trained(jax.random.key(0))
    assert float(np.mean(returns[:3])) < 0.4 and float(np.mean(returns[-5:])) > 0.9
    assert float(np.max(mismatches)) < 1e-5
