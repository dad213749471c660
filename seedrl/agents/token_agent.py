"""Tokens as an `Agent` stores them: so that learning, checkpoints and evaluation know no tokens.

A stored sequence is one rollout: an episode of T = `network.context` tokens, padded at its end. Its
steps are tokens. Of a `StoredStep` `[T]`, `action` is the token's id and `version` the parameters
that sampled it or read it; `extras` is a `TokenExtras`. `timestep.reward` is on the last token of
the completion that earned it; `timestep.discount` is 0 on the last token if the episode ended, and
1 everywhere if a length cut it. There is no observation: what the policy has read are tokens, too.

`learner.acting.token_generator` writes these. `answer` here answers a batch of turns by a plain
loop, which waits for the longest: `seedrl evaluate` and `seedrl.load_policy` play with it.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from seedrl.agents.agent import ActOutput
from seedrl.errors import ConfigError
from seedrl.networks import decoder
from seedrl.networks.decoder import DecoderConfig, KVCache
from seedrl.rl import tokens
from seedrl.specs import FIRST_HELD_OUT_SEED, MOST_SEED, EnvSpec, TokensSpec
from seedrl.types import Array, StepType, StoredStep, TimeStep, Tree

# `TokenExtras.source`: padding is never trained, and neither are tokens of the environment.
PADDING, ENVIRONMENT, POLICY = range(3)


class TokenExtras(NamedTuple):
    """What is stored of a token, next to its id."""

    source: Array  # `[...] uint8`: PADDING, ENVIRONMENT or POLICY
    log_mu: Array  # `[...] float32`, of a token of the policy when it was sampled, else 0


def padding(*shape: int) -> StoredStep:
    """Sequences without a token, leaves `shape`: numpy arrays."""
    ids, versions = np.zeros((2, *shape), np.int32)
    rewards, log_mu = np.zeros((2, *shape), np.float32)
    kinds, discounts = np.full(shape, StepType.MID, np.uint8), np.ones(shape, np.float32)
    extras = TokenExtras(np.full(shape, PADDING, np.uint8), log_mu)
    return StoredStep(TimeStep(kinds, rewards, discounts, ()), ids, versions, extras)


def sizes_of(network: DecoderConfig, spec: EnvSpec) -> TokensSpec:
    """The tokens of a spec. Raises ConfigError for an environment that the network does not fit."""
    sizes = spec.action
    if not isinstance(sizes, TokensSpec):
        raise ConfigError(
            f"agent: GRPO takes environments of token ids (seedrl.TokenEnv), got {spec.action}"
        )
    if network.vocabulary != sizes.vocabulary:
        raise ConfigError(
            f"agent.network.vocabulary: expected {sizes.vocabulary}, the environment's, got "
            f"{network.vocabulary}"
        )
    if network.context < (least := sizes.longest_turn + sizes.longest_completion):
        raise ConfigError(
            f"agent.network.context: expected at least {least}, room for the environment's longest "
            f"turn ({sizes.longest_turn}) and completion ({sizes.longest_completion}), got "
            f"{network.context}"
        )
    return sizes


def initial_carry(network: DecoderConfig, batch_size: int) -> KVCache:
    """The memory of `answer` between two turns: nothing has been read. Leaves are `[B, ...]`."""
    return _turned(decoder.empty_cache(network, batch_size))


def _turned(cache: KVCache) -> KVCache:
    # Layers before rows, or rows before layers.
    keys, values = (jnp.swapaxes(leaf, 0, 1) for leaf in cache[:2])
    return KVCache(keys, values, cache.lengths)


def answer(
    network: DecoderConfig,
    sizes: TokensSpec,
    params: Tree,
    carry: KVCache,
    timestep: TimeStep,
    temperature: Array,
    key: Array,
) -> ActOutput:
    """See `Agent.act`: reads the turns `[B, 2 + longest_turn]`, samples until every row has ended.

    A row whose context has no room for an answer asks for a question instead, which training never
    asks. `temperature [B] float32`, 0 for the likeliest tokens.
    """
    longest = sizes.longest_completion
    rows = timestep.observation.astype(jnp.int32)
    # A question that was asked for starts an episode, as FIRST does.
    is_new = (timestep.step_type == StepType.FIRST) | (rows[:, 0] > 0)
    lengths = jnp.where(is_new, 0, carry.lengths)
    is_full = (rows[:, 1] > 0) & (lengths + rows[:, 1] >= network.context)
    counts = jnp.where(is_full, 0, rows[:, 1])
    cache = _turned(carry)._replace(lengths=lengths)
    cache, logits = decoder.prefill(network, params, cache, rows[:, 2:], counts)

    def goes_on(loop: tuple[Array, ...]) -> Array:
        return jnp.any(loop[2])

    def one_token(loop: tuple[Tree, ...]) -> tuple[Tree, ...]:
        cache, logits, is_open, ids, sampled, place = loop
        new, _ = tokens.sample(jax.random.fold_in(key, place), logits, temperature)
        ids = ids.at[:, place].set(jnp.where(is_open, new, 0))
        sampled += is_open
        # The last one, too: the next turn comes after it.
        cache, logits = decoder.decode(network, params, cache, new, is_open)
        has_room = cache.lengths < network.context
        is_open &= (new != sizes.end) & (sampled < longest) & has_room
        return cache, logits, is_open, ids, sampled, place + 1

    batch = rows.shape[0]
    empty = jnp.zeros((batch, longest), jnp.int32)
    number = jnp.zeros(batch, jnp.int32)
    loop = (cache, logits, counts > 0, empty, number, jnp.int32(0))
    cache, _, _, ids, sampled, _ = jax.lax.while_loop(goes_on, one_token, loop)
    new_key = jax.random.fold_in(key, longest)
    seeds = jax.random.randint(new_key, (batch,), FIRST_HELD_OUT_SEED, MOST_SEED)
    asked = jnp.where(is_full, seeds + 1, 0)
    action = jnp.concatenate([asked[:, None], sampled[:, None], ids], axis=1)
    return ActOutput(action, _turned(cache), ())
