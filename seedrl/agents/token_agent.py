"""A GRPO policy as an `Agent`: so that learning, checkpoints and evaluation need to know no tokens.

A stored sequence is one rollout: an episode of T = `network.context` tokens, padded at its end. Its
steps are tokens. Of a `StoredStep` `[T]`, `action` is the token's id and `version` the parameters
that sampled it or read it; `extras` is a `TokenExtras`. `timestep.reward` is on the last token of
the completion that earned it; `timestep.discount` is 0 on the last token if the episode ended, and
1 everywhere if a length cut it. There is no observation: what the policy has read are tokens, too.

`learner.acting.token_lane` writes these. `act` here answers a batch of turns by a plain loop, which
waits for the longest: `seedrl evaluate` and `seedrl.load_policy` play with it.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from seedrl.agents.agent import ActOutput, Agent, AgentState, UpdateOutput, no_carry
from seedrl.agents.window import WindowSpec
from seedrl.errors import ConfigError
from seedrl.networks import decoder
from seedrl.networks.decoder import DecoderConfig, KVCache
from seedrl.rl import tokens
from seedrl.specs import EnvSpec, TokensSpec
from seedrl.types import Array, Page, Sequence, StepType, StoredStep, TimeStep, Tree

# `TokenBatch.sources`: padding is never trained, and neither are tokens of the environment.
PADDING, ENVIRONMENT, POLICY = range(3)


class TokenBatch(NamedTuple):
    """B sequences of up to T tokens, in whole groups: a group's sequences follow each other."""

    ids: Array  # `[B, T] int32`; after the end of a sequence any id of the vocabulary
    sources: Array  # `[B, T] int32`: PADDING, ENVIRONMENT or POLICY
    log_mu: Array  # `[B, T] float32`: log-probability of POLICY tokens when they were sampled
    versions: Array  # `[B, T] int32`: updates of the parameters that sampled or prefilled a token
    returns: Array  # `[B] float32`: sum of rewards
    truncated: Array  # `[B] bool`: cut by length


class TokenExtras(NamedTuple):
    """What is stored of a token, next to its id."""

    source: Array  # `[...] uint8`, as `TokenBatch.sources`
    log_mu: Array  # `[...] float32`, of a token of the policy when it was sampled, else 0


class TokenCarry(NamedTuple):
    """The memory of `act` between two turns, leaves `[B, ...]`."""

    keys: Array  # `[B, layers, context, kv_heads, head_dim]`
    values: Array
    lengths: Array  # `[B] int32`, tokens in the cache
    last: Array  # `[B] int32`, the last sampled token, which is not in the cache yet; -1 for none


def rollout_shapes(context: int) -> Page:
    """A rollout as replay stores it, `jax.ShapeDtypeStruct`: steps `[T]`, no carry."""

    def leaf(dtype: str) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((context,), dtype)

    timestep = TimeStep(leaf("uint8"), leaf("float32"), leaf("float32"), ())
    extras = TokenExtras(leaf("uint8"), leaf("float32"))
    return Page(StoredStep(timestep, leaf("int32"), leaf("int32"), extras), ())


def batch_of(sequence: Sequence) -> TokenBatch:
    """The rollouts of a sequence `[T, B]`, as the update takes them."""
    steps = sequence.steps
    return TokenBatch(
        ids=steps.action.T,
        sources=steps.extras.source.T.astype(jnp.int32),
        log_mu=steps.extras.log_mu.T,
        versions=steps.version.T,
        returns=jnp.sum(steps.timestep.reward, axis=0),
        truncated=jnp.all(steps.timestep.discount == 1, axis=0),
    )


def token_agent(
    spec: EnvSpec,
    *,
    network: DecoderConfig,
    temperature: float,
    window: WindowSpec,
    init_state: Callable[[Tree], AgentState],
    prepare: Callable[[AgentState, TokenBatch], Tree],
    update: Callable[[AgentState, Tree, Callable[[Tree], Tree]], tuple[AgentState, UpdateOutput]],
    epochs: int = 1,
    minibatches: int = 1,
) -> Agent:
    """The agent of a spec, which samples at a temperature.

    Args:
      prepare: `(state, batch)` -> what minibatches are taken from, leaves `[B, ...]`.
      update: `(state, minibatch, mean) -> (state, output)`, see `Agent.update`.

    Raises ConfigError for an environment that the network does not fit.
    """
    sizes = _checked(network, spec)

    def init(key: Array) -> Tree:
        return decoder.init(network, key)

    def initial_carry(batch_size: int) -> TokenCarry:
        cache = decoder.empty_cache(network, batch_size)
        none = jnp.full((batch_size,), -1, jnp.int32)
        return _carry_of(cache, none)

    def act(
        params: Tree, carry: TokenCarry, timestep: TimeStep, exploration: Array, key: Array
    ) -> ActOutput:
        return _answer(network, sizes, params, carry, timestep, exploration, key)

    # Elsewhere a batch is `[T, B]`.
    def preprocess_batch(
        state: AgentState, sequence: Sequence, weights: Array
    ) -> tuple[Sequence, Array]:
        return Sequence(_transposed(prepare(state, batch_of(sequence))), ()), weights

    def update_from(
        state: AgentState,
        sequence: Sequence,
        weights: Array,
        key: Array,
        mean: Callable[[Tree], Tree],
    ) -> tuple[AgentState, UpdateOutput]:
        del weights, key  # all count alike, and nothing is drawn
        return update(state, _transposed(sequence.steps), mean)

    return Agent(
        window=window,
        init=init,
        initial_carry=initial_carry,
        act=act,
        # Exploring is sampling at a temperature.
        exploration=lambda slots: np.full(slots, temperature, np.float32),
        evaluation_exploration=0.0,
        init_state=init_state,
        update=update_from,
        epochs=epochs,
        minibatches=minibatches,
        preprocess_batch=preprocess_batch,
        stored_carry=no_carry,
    )


def _transposed(rows: Tree) -> Tree:
    return jax.tree.map(jnp.transpose, rows)


def _checked(network: DecoderConfig, spec: EnvSpec) -> TokensSpec:
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


def _carry_of(cache: KVCache, last: Array) -> TokenCarry:
    keys, values = (jnp.swapaxes(leaf, 0, 1) for leaf in cache[:2])
    return TokenCarry(keys, values, cache.lengths, last)


def _answer(
    network: DecoderConfig,
    sizes: TokensSpec,
    params: Tree,
    carry: TokenCarry,
    timestep: TimeStep,
    temperature: Array,
    key: Array,
) -> ActOutput:
    # Reads the turns `[B, 2 + longest_turn]`, then samples until every row has ended.
    longest = sizes.longest_completion
    rows = timestep.observation.astype(jnp.int32)
    is_first = timestep.step_type == StepType.FIRST
    lengths = jnp.where(is_first, 0, carry.lengths)
    last = jnp.where(is_first, -1, carry.last)
    # The token that was sampled last comes before the turn.
    has_last = (last >= 0).astype(jnp.int32)
    shifted = jnp.concatenate([last[:, None], rows[:, 2:]], axis=1)
    plain = jnp.concatenate([rows[:, 2:], rows[:, :1]], axis=1)
    fed = jnp.where(has_last[:, None] > 0, shifted, plain)
    counts = rows[:, 1] + has_last
    # A turn that leaves no room for an answer gets none.
    counts = jnp.where((rows[:, 1] > 0) & (lengths + counts < network.context), counts, 0)
    keys, values = (jnp.swapaxes(leaf, 0, 1) for leaf in carry[:2])
    cache, logits = decoder.prefill(network, params, KVCache(keys, values, lengths), fed, counts)

    def goes_on(loop: tuple[Array, ...]) -> Array:
        return jnp.any(loop[2])

    def one_token(loop: tuple[Tree, ...]) -> tuple[Tree, ...]:
        cache, logits, is_open, ids, sampled, place, last = loop
        new, _ = tokens.sample(jax.random.fold_in(key, place), logits, temperature)
        ids = ids.at[:, place].set(jnp.where(is_open, new, 0))
        sampled += is_open
        last = jnp.where(is_open, new, last)
        has_room = cache.lengths + 1 < network.context
        is_open &= (new != sizes.end) & (sampled < longest) & has_room
        cache, logits = decoder.decode(network, params, cache, new, is_open)
        return cache, logits, is_open, ids, sampled, place + 1, last

    batch = rows.shape[0]
    empty = jnp.zeros((batch, longest), jnp.int32)
    number = jnp.zeros(batch, jnp.int32)
    loop = (cache, logits, counts > 0, empty, number, jnp.int32(0), last)
    cache, _, _, ids, sampled, _, last = jax.lax.while_loop(goes_on, one_token, loop)
    action = jnp.concatenate([jnp.zeros((batch, 1), jnp.int32), sampled[:, None], ids], axis=1)
    return ActOutput(action, _carry_of(cache, last), ())
