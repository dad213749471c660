"""GRPO: policy gradients on token sequences, by comparison within groups (Shao et al. 2024).

All sequences of a group answer the same question; a sequence's advantage is how much better it did
than the others. From top to bottom: the configuration, a batch, the state, the update, the loss.
Equations are in `seedrl.rl.tokens` and `surrogate`, the network in `seedrl.networks.decoder`.
"""

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax

from seedrl.agents.agent import Agent, AgentState, UpdateOutput, no_carry
from seedrl.agents.gradient_update import GradientUpdate, LossOutput, copied
from seedrl.agents.token_agent import POLICY, answer, initial_carry, sizes_of
from seedrl.agents.window import WindowSpec
from seedrl.errors import ConfigError
from seedrl.fields import (
    AtLeastOne,
    Decay,
    Fraction,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    Range,
    check_fields,
)
from seedrl.networks import decoder
from seedrl.networks.decoder import DecoderConfig
from seedrl.rl import tokens
from seedrl.rl.distributions import Categorical
from seedrl.rl.surrogate import clipped_surrogate, divergence, mean_of, normalized
from seedrl.specs import EnvSpec
from seedrl.types import Array, Sequence, StoredStep, Tree


@dataclass(frozen=True, kw_only=True)
class GRPOConfig:
    """GRPO. "DAPO" is Yu et al. 2025, https://arxiv.org/abs/2503.14476.

    Attributes:
      network: sizes of the decoder.
      group: sequences that answer the same question.
      advantage: comparison within a group, see `seedrl.rl.tokens.group_advantages`. With "gae" the
        agent is PPO instead: advantages come from a value head, which all groups train.
      gae_lambda: lambda of "gae".
      value_cost: weight of half the squared error of the value, with "gae".
      temperature: logits are divided by it when acting and when learning.
      clip_low: the largest decrease of a probability ratio that is rewarded. DAPO: 0.2.
      clip_high: the largest increase of it that is rewarded. DAPO: 0.28.
      ratio_cap: upper limit of a ratio's weight in the gradient, at least `1 + clip_high`.
      entropy: weight of the policy's entropy, which is maximised.
      kl: weight of the divergence from the parameters before the first update, with LoRA from the
        network without it; 0 keeps no copy of them.
      train_truncated: train sequences that were cut by length, too. DAPO masks them; then nothing
        teaches that an answer has to end.
      learning_rate: learning rate of Adam.
      warmup_updates: optimizer steps over which the learning rate rises linearly to its value.
      adam_b2: decay of Adam's mean squared gradient.
      max_gradient_norm: gradients are scaled down to this global norm.
    """

    network: DecoderConfig = field(default_factory=DecoderConfig)
    group: Annotated[int, Range("at least 2", lambda number: number >= 2)] = 8
    advantage: Literal["grpo", "dr_grpo", "rloo", "gae"] = "grpo"
    gae_lambda: Fraction = 1.0
    value_cost: NonNegativeFloat = 0.5
    temperature: PositiveFloat = 1.0
    clip_low: Fraction = 0.2
    clip_high: PositiveFloat = 0.28
    ratio_cap: AtLeastOne = 3.0
    entropy: NonNegativeFloat = 0.0
    kl: NonNegativeFloat = 0.0
    train_truncated: bool = True
    learning_rate: PositiveFloat = 1e-3
    warmup_updates: NonNegativeInt = 0
    adam_b2: Decay = 0.99
    max_gradient_norm: PositiveFloat = 1.0

    # Not a field: `seedrl.config.acts_on_tokens` looks for it.
    acts_on_tokens: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_fields("agent.", self)
        if self.ratio_cap < 1 + self.clip_high:
            raise ConfigError(
                f"agent.ratio_cap: expected at least 1 + agent.clip_high, {1 + self.clip_high:g}, "
                f"got {self.ratio_cap:g}"
            )

    @property
    def window(self) -> WindowSpec:
        # A stored sequence is one rollout.
        context = self.network.context
        return WindowSpec(burn_in=0, unroll=context, bootstrap=0, stride=context)

    def build(self, spec: EnvSpec) -> Agent:
        """The agent of a spec of token ids. Raises ConfigError for one that does not fit."""
        sizes = sizes_of(self.network, spec)
        return Agent(
            window=self.window,
            init=functools.partial(decoder.init, self.network),
            initial_carry=functools.partial(initial_carry, self.network),
            act=functools.partial(answer, self.network, sizes),
            # Exploring is sampling at a temperature.
            exploration=lambda slots: np.full(slots, self.temperature, np.float32),
            evaluation_exploration=0.0,
            init_state=step_of(self).init_state,
            update=functools.partial(update, self),
            stored_carry=no_carry,
        )


def update(
    config: GRPOConfig,
    state: AgentState,
    sequence: Sequence,
    weights: Array,
    key: Array,
    mean: Callable[[Tree], Tree],
) -> tuple[AgentState, UpdateOutput]:
    """See `Agent.update`; a group's rollouts follow each other."""
    steps = jax.tree.map(jnp.transpose, sequence.steps)
    # Of whole rollouts: where the cache is older, so is what a token was sampled from.
    is_current = steps.version[:, 0] == state.updates
    batch: Any = (steps, is_current)
    return step_of(config)(state, batch, weights, key, mean)


def step_of(config: GRPOConfig) -> GradientUpdate:
    """The loss and its optimizer."""
    rate: float | optax.Schedule = config.learning_rate
    if config.warmup_updates:
        # Adam's first steps are as long as any, and have the fewest gradients to go by.
        first = config.learning_rate / config.warmup_updates
        rate = optax.linear_schedule(first, config.learning_rate, config.warmup_updates - 1)
    optimizer = optax.chain(
        optax.clip_by_global_norm(config.max_gradient_norm),
        optax.adam(rate, b2=config.adam_b2),
    )
    network = config.network
    if network.lora_rank:
        optimizer = optax.masked(optimizer, functools.partial(decoder.is_trained, network))
    # With LoRA the first parameters are those without it.
    keeps_copy = config.kl and not network.lora_rank
    return GradientUpdate(
        loss=functools.partial(_loss, config),
        optimizer=optimizer,
        init_target=copied if keeps_copy else lambda params: (),
        may_train_nothing=True,
    )


def _loss(
    config: GRPOConfig,
    params: Tree,
    target: Tree,
    batch: tuple[StoredStep, Array],
    weights: Array,
    key: Array,
) -> tuple[Array, LossOutput]:
    """L = -surrogate(π / μ, A) - entropy H(π) + kl KL(π, π_0), means over tokens of the policy.

    KL is estimated from the tokens, by r - 1 - log r with r = π_0 / π. With a value head also +
    value_cost ½ (V - target)². Without one the means, but that of KL, are over groups whose returns
    differ: the others teach nothing, and must not drift away either.

    `batch`: rollouts, leaves `[B, T]`, and which of them, `[B] bool`, `params` have sampled from
    their first token on. Whatever follows a rollout's end is no token of the policy.

    Source: Shao et al. 2024, equations 3 and 4, https://arxiv.org/abs/2402.03300; the mean over
    all tokens: Yu et al. 2025, equation 8.
    """
    del weights, key  # all count alike, and nothing is drawn
    steps, is_current = batch
    ids, (source, log_mu) = steps.action, steps.extras
    chex.assert_rank(ids, 2)
    chex.assert_equal_shape([ids, source, log_mu, steps.timestep.reward])
    chex.assert_is_divisible(len(ids), config.group)
    returns = jnp.sum(steps.timestep.reward, axis=1)
    is_truncated = jnp.all(steps.timestep.discount == 1, axis=1)
    groups = returns.reshape(-1, config.group)
    has_spread = tokens.has_spread(groups)
    # The logits after token t are the policy of token t + 1.
    is_policy = source[:, 1:] == POLICY
    log_mu = log_mu[:, 1:]
    params = decoder.with_frozen(config.network, params)
    logits, values = decoder.unroll(config.network, params, ids[:, :-1], value=True)
    policy = Categorical(logits / config.temperature)
    log_policy = policy.log_probability(ids[:, 1:])
    is_counted = is_policy if config.train_truncated else is_policy & ~is_truncated[:, None]
    is_trained = is_counted
    if config.advantage == "gae":
        advantages, targets = tokens.token_gae(
            jax.lax.stop_gradient(values), is_policy, returns, gae_lambda=config.gae_lambda
        )
        advantages = normalized(advantages, is_trained)
    else:
        is_trained = is_counted & jnp.repeat(has_spread, config.group)[:, None]
        advantages = tokens.group_advantages(groups, config.advantage).reshape(-1, 1)
    # Of other tokens 0: whatever is stored there, their ratio is 1.
    log_ratios = jnp.where(is_trained, log_policy - log_mu, 0.0)
    ratios = jnp.exp(log_ratios)
    mean = functools.partial(mean_of, is_trained=is_trained)
    gained = clipped_surrogate(
        log_ratios,
        advantages,
        clip_low=config.clip_low,
        clip_high=config.clip_high,
        ratio_cap=config.ratio_cap,
    )
    metrics = {
        "policy_loss": -mean(gained),
        "entropy": mean(policy.entropy()),
        "behaviour_kl": mean(divergence(log_ratios)),
        "ratio_max": jnp.max(ratios),
        "clip_fraction": mean((ratios < 1 - config.clip_low) | (ratios > 1 + config.clip_high)),
        "cap_fraction": mean(ratios > config.ratio_cap),
    }
    total = metrics["policy_loss"] - config.entropy * metrics["entropy"]
    distances: dict[str, Array] = {}
    if config.kl:
        # With LoRA the first parameters are those without it.
        network = dataclasses.replace(config.network, lora_rank=0)
        first = params if config.network.lora_rank else target
        logits = decoder.unroll(network, first, ids[:, :-1])
        log_first = Categorical(logits / config.temperature).log_probability(ids[:, 1:])
        each = divergence(jnp.where(is_counted, log_first - log_policy, 0.0))
        distances = {"reference_kl": mean_of(each, is_counted)}
        total += config.kl * distances["reference_kl"]
    if config.advantage == "gae":
        metrics["value_loss"] = 0.5 * mean(jnp.square(values - targets))
        total += config.value_cost * metrics["value_loss"]
    # Of tokens that the same parameters sampled: 0 in exact arithmetic.
    is_same = is_policy & is_current[:, None]
    differences = jnp.where(is_same, log_policy - log_mu, 0.0)
    mismatches = {
        "mismatch_kl": mean_of(divergence(differences), is_same),
        "mismatch_max": jnp.max(jnp.abs(differences)),
    }
    # Without a token to compare they are not measured: zeros would dilute the others' means.
    metrics = _measured_if(is_trained, metrics) | _measured_if(is_counted, distances)
    metrics |= _measured_if(is_same, mismatches)
    metrics |= {
        "groups_with_spread": jnp.mean(has_spread),
        "return_mean": jnp.mean(returns),
        "truncated_fraction": jnp.mean(is_truncated),
        "trained_tokens": jnp.sum(is_trained, dtype=jnp.float32),
    }
    return total, LossOutput(priorities=(), metrics=metrics)


def _measured_if(counts: Array, metrics: dict[str, Array]) -> dict[str, Array]:
    return {name: jnp.where(jnp.any(counts), value, jnp.nan) for name, value in metrics.items()}
