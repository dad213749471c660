"""A synchronous GRPO to compare with: sample, learn, repeat, in plain jax and one thread.

Of the system it has the network and the task. Sampling, advantages, loss and loop are its own, and
as simple as can be: no cache (each token reads its whole sequence again), no queue, no lag.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from seedrl.agents.grpo import GRPOConfig
from seedrl.networks import decoder
from seedrl.token_env import TokenEnv
from seedrl.types import Array, Tree

_SEEDS = 2**30  # of questions in training; evaluation has those above


class Round(NamedTuple):
    """A round of evaluation: completions sampled for training before it, and its mean score."""

    samples: int
    score: float


def group_advantages(groups: Array) -> Array:
    """`[N, G]`: how much better than the mean of its group, in standard deviations."""
    std = groups.std(axis=1, keepdims=True)
    return (groups - groups.mean(axis=1, keepdims=True)) / jnp.where(std > 0, std, 1.0)


class Reference:
    """GRPO on questions of one length, answered in one turn.

    `config`: network, group, temperature, clipping and optimizer; all else is at its default.
    `advantages`: of rewards `[N, G]`; of groups whose advantages are all 0 nothing is learned.
    """

    def __init__(
        self,
        config: GRPOConfig,
        env: TokenEnv,
        params: Tree,
        *,
        seed: int,
        advantages: Callable[[Array], Array] = group_advantages,
    ):
        self._config, self._env, self._params = config, env, params
        self._advantages = advantages
        self._optimizer = optax.chain(
            optax.clip_by_global_norm(config.max_gradient_norm),
            optax.adam(
                optax.linear_schedule(0.0, config.learning_rate, config.warmup_updates),
                b2=config.adam_b2,
            ),
        )
        self._state = self._optimizer.init(params)
        self._random = np.random.default_rng(seed)
        self._keys = map(jax.random.PRNGKey, range(seed * 10**6, (seed + 1) * 10**6))
        self._sample, self._step = jax.jit(self._sampled), jax.jit(self._stepped)

    def rounds(self, *, batch: int, interval: int, episodes: int) -> Iterator[Round]:
        """Trains, `batch` completions an update, and evaluates every `interval` completions."""
        group, samples, due = self._config.group, 0, 0
        while True:
            if samples >= due:
                due = samples + interval
                yield Round(samples, self.score(episodes, temperature=0.0))
            seeds = np.repeat(self._random.integers(_SEEDS, size=batch // group), group)
            answered = self._answered(seeds, temperature=self._config.temperature)
            self._params, self._state = self._step(self._params, self._state, *answered)
            samples += batch

    def score(self, episodes: int, *, temperature: float) -> float:
        """Mean reward of answers to held-out questions; the likeliest tokens at temperature 0."""
        seeds = self._random.integers(_SEEDS, 2 * _SEEDS, episodes)
        return float(np.mean(self._answered(seeds, temperature=temperature)[-1]))

    def _answered(self, seeds: np.ndarray, *, temperature: float) -> tuple[Array, Array, Array]:
        """Whole sequences `[B, Q + A]`, log mu `[B, A]`, rewards `[B]`."""
        questions = np.stack([self._env.reset(int(seed)) for seed in seeds])
        ids, log_mu = self._sample(self._params, next(self._keys), questions, temperature)
        answers = np.asarray(ids)[:, questions.shape[1] :]
        rewards = np.zeros(len(seeds), np.float32)
        for row, seed in enumerate(seeds):
            self._env.reset(int(seed))
            rewards[row] = self._env.step(before_and_end(answers[row], self._env.tokens.end))[1]
        return ids, log_mu, rewards

    def _sampled(
        self, params: Tree, key: Array, questions: Array, temperature: Array
    ) -> tuple[Array, Array]:
        size, longest = questions.shape[1], self._env.longest_completion
        ids = jnp.pad(questions, ((0, 0), (0, longest)))

        def one(ids: Array, place: Array) -> tuple[Array, Array]:
            logits = decoder.unroll(self._config.network, params, ids)[:, place - 1]
            scaled = logits / jnp.where(temperature > 0, temperature, 1.0)
            drawn = jax.random.categorical(jax.random.fold_in(key, place), scaled)
            token = jnp.where(temperature > 0, drawn, jnp.argmax(logits, -1)).astype(jnp.int32)
            own = jnp.take_along_axis(jax.nn.log_softmax(scaled), token[:, None], 1)[:, 0]
            return ids.at[:, place].set(token), own

        ids, log_mu = jax.lax.scan(one, ids, size + jnp.arange(longest))
        return ids, log_mu.T

    def _stepped(
        self, params: Tree, state: Tree, ids: Array, log_mu: Array, rewards: Array
    ) -> tuple[Tree, Tree]:
        gradients = jax.grad(self._loss)(params, ids, log_mu, rewards)
        deltas, state = self._optimizer.update(gradients, state, params)
        return optax.apply_updates(params, deltas), state

    def _loss(self, params: Tree, ids: Array, log_mu: Array, rewards: Array) -> Array:
        config, longest = self._config, log_mu.shape[1]
        logits = decoder.unroll(config.network, params, ids[:, :-1])[:, -longest:]
        answers = ids[:, -longest:]
        log_pi = jax.nn.log_softmax(logits / config.temperature)
        log_pi = jnp.take_along_axis(log_pi, answers[..., None], -1)[..., 0]
        # Up to the first end; of an answer without one nothing is learned.
        is_end = answers == self._env.tokens.end
        counts = (jnp.cumsum(is_end, axis=1) - is_end == 0) & is_end.any(axis=1, keepdims=True)
        advantages = self._advantages(rewards.reshape(-1, config.group))
        counts &= jnp.repeat((advantages != 0).any(axis=1), config.group).reshape(-1, 1)
        ratio = jnp.exp(jnp.where(counts, log_pi - log_mu, 0.0))
        clipped = jnp.clip(ratio, 1 - config.clip_low, 1 + config.clip_high)
        advantages = advantages.reshape(-1, 1)
        gained = jnp.minimum(ratio * advantages, clipped * advantages)
        return -jnp.sum(gained * counts) / jnp.maximum(jnp.sum(counts), 1)


def before_and_end(ids: np.ndarray, end: int) -> np.ndarray:
    """The ids up to the first `end`, with it; all if there is none."""
    ends = np.flatnonzero(ids == end)
    return ids[: ends[0] + 1 if ends.size else None]


def samples_to(rounds: Iterator[Round], target: float) -> float:
    """Completions until the score reaches `target`, on the line between the two rounds around."""
    before = next(rounds)
    if before.score >= target:
        return float(before.samples)
    for after in rounds:
        if after.score >= target:
            share = (target - before.score) / (after.score - before.score)
            return before.samples + share * (after.samples - before.samples)
        before = after
    raise RuntimeError(f"the score stayed below {target:g}; the last was {before.score:.3f}")
