"""An agent that sees observations and rewards in running units.

The moments are part of the parameters: so whatever acts, in training, in an evaluation or as a
policy by itself, has those of its parameters' version, and checkpoints hold them.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from seedrl.agents.agent import ActOutput, Agent, AgentState, UpdateOutput
from seedrl.agents.normalization.moments import (
    Moments,
    deviation,
    merged,
    moments_of,
    no_moments,
)
from seedrl.errors import ConfigError
from seedrl.networks.torsos import is_image
from seedrl.specs import ArraySpec, EnvSpec
from seedrl.types import Array, Sequence, StepType, TimeStep, Tree

# Of observations and of rewards, in standard deviations: as in VecNormalize.
LIMIT = 10.0
# Of a pixel, in the units of uint8: the first change of one that has hardly ever changed is no more
# of an event than a change of others.
_LEAST_OF_PIXELS = 0.5


class NormalizedParams(NamedTuple):
    """The parameters of an agent, and the units in which it sees the environment.

    Attributes:
      agent: its own parameters; of a behaviour, its own behaviour.
      observations: those of each array of an observation that is normalized, in wire order.
      returns: `[]`, of the discounted sums of rewards, or `()` if rewards are not normalized.
    """

    agent: Tree
    observations: tuple[Moments, ...]
    returns: Moments | tuple[()]


class NormalizedCarry(NamedTuple):
    """What an agent needs from before a time step, and the rewards so far.

    Attributes:
      agent: its own carry.
      discounted_sum: `[B] float32`, or `()` if rewards are not normalized: R_t = r_t + γ R_{t-1},
        over the rewards of the episode as they arrived.
    """

    agent: Tree
    discounted_sum: Array | tuple[()]


class Normalization(NamedTuple):
    """What is normalized.

    Attributes:
      spec: of the environments.
      observations: whether arrays of floats of an observation are: (x - mean) / deviation, each
        element by itself, clipped to plus or minus LIMIT.
      rewards: whether rewards are: divided by the deviation of their discounted sums, without
        taking off a mean, and clipped to plus or minus LIMIT.
      gamma: discount of one step, of those sums.
      images: whether images are, each pixel by itself; a deviation is at least half a grey level.
    """

    spec: EnvSpec
    observations: bool
    rewards: bool
    gamma: float
    images: bool = False


def settings_of(config: Any, spec: EnvSpec) -> Normalization:
    """What an agent's configuration asks for."""
    observations, rewards = config.normalize_observations, config.normalize_rewards
    return Normalization(spec, observations, rewards, config.gamma, config.normalize_images)


def seen_by_agent(settings: Normalization) -> EnvSpec:
    """The spec of what the agent within sees: normalized images are float16, 0 their mean."""
    leaves = [
        dataclasses.replace(leaf, dtype="float16")
        if leaf.dtype == "uint8" and _is_normalized(settings, leaf)
        else leaf
        for _, leaf in settings.spec.leaves()
    ]
    return dataclasses.replace(settings.spec, observation=settings.spec.unflatten(leaves))


def with_normalization(agent: Agent, settings: Normalization) -> Agent:
    """`agent`, acting on and learning from what is normalized; itself if nothing is to be.

    It must learn from each row once: moments are over the rows that `agent.window` trains, of each
    batch once, after all passes over it. So a batch that was acted by the newest parameters is
    learned from in the very units in which it was acted.

    It must have been built for `seen_by_agent(settings)`.

    Raises ConfigError if observations are to be normalized and hold no floats, or images and there
    are none.
    """
    if not (settings.observations or settings.rewards or settings.images):
        return agent
    shapes = [leaf.shape for leaf in _normalized_leaves(settings)]

    def init(key: Array) -> NormalizedParams:
        returns = no_moments(()) if settings.rewards else ()
        return NormalizedParams(agent.init(key), tuple(map(no_moments, shapes)), returns)

    def initial_carry(batch_size: int) -> NormalizedCarry:
        sums = jnp.zeros(batch_size) if settings.rewards else ()
        return NormalizedCarry(agent.initial_carry(batch_size), sums)

    def init_state(params: NormalizedParams) -> AgentState:
        return agent.init_state(params.agent)._replace(params=params)

    def behaviour(params: NormalizedParams) -> NormalizedParams:
        return params._replace(agent=agent.behaviour(params.agent))

    return agent._replace(
        init=init,
        initial_carry=initial_carry,
        act=functools.partial(_act, settings, agent),
        init_state=init_state,
        before_batch=functools.partial(_before_batch, settings, agent),
        update=functools.partial(_update, settings, agent),
        after_batch=functools.partial(_after_batch, settings, agent),
        behaviour=behaviour,
    )


def _normalized_leaves(settings: Normalization) -> list[ArraySpec]:
    leaves = settings.spec.leaves()
    found = [leaf for _, leaf in leaves if _is_normalized(settings, leaf)]
    has_image = any(leaf.dtype == "uint8" for leaf in found)
    seen = ", ".join(f"{path} {leaf.dtype}{list(leaf.shape)}" for path, leaf in leaves)
    if settings.observations and all(leaf.dtype == "uint8" for leaf in found):
        raise ConfigError(
            f"agent.normalize_observations: expected an array of floats in the observation, got "
            f"{seen}; integers are not normalized, and images by agent.normalize_images: leave it "
            "False"
        )
    if settings.images and not has_image:
        raise ConfigError(
            "agent.normalize_images: expected an image (uint8 of rank 2 or 3) in the observation, "
            f"got {seen}; leave it False"
        )
    return found


def _is_normalized(settings: Normalization, leaf: ArraySpec) -> bool:
    if leaf.dtype == "uint8":
        return settings.images and is_image(leaf)
    return settings.observations and leaf.dtype.startswith("float")


def _act(
    settings: Normalization,
    agent: Agent,
    behaviour: NormalizedParams,
    carry: NormalizedCarry,
    timestep: TimeStep,
    exploration: Array,
    key: Array,
) -> ActOutput:
    seen = normalized(settings, behaviour, timestep)
    output = agent.act(behaviour.agent, carry.agent, seen, exploration, key)
    sums: Any = carry.discounted_sum
    if settings.rewards:
        sums = _next_sum(settings.gamma, sums, timestep)
    return output._replace(carry=NormalizedCarry(output.carry, sums))


def normalized(settings: Normalization, params: NormalizedParams, timestep: TimeStep) -> TimeStep:
    """What the agent sees of a time step, leaves `[..., ...]`, in the units of `params`."""
    moments = iter(params.observations)
    seen = [
        _standardized(leaf, next(moments)) if is_normalized else leaf
        for leaf, is_normalized in _leaves(settings, timestep.observation)
    ]
    timestep = timestep._replace(observation=settings.spec.unflatten(seen))
    if settings.rewards:
        assert isinstance(params.returns, Moments)
        reward = timestep.reward / deviation(params.returns)
        timestep = timestep._replace(reward=jnp.clip(reward, -LIMIT, LIMIT))
    return timestep


def _leaves(settings: Normalization, observation: Tree) -> list[tuple[Array, bool]]:
    """The arrays of an observation, in wire order, and whether each is normalized."""
    specs = [leaf for _, leaf in settings.spec.leaves()]
    leaves = settings.spec.flatten(observation)
    return [(x, _is_normalized(settings, spec)) for x, spec in zip(leaves, specs, strict=True)]


def _standardized(leaf: Array, moments: Moments) -> Array:
    leading = tuple(range(leaf.ndim - moments.mean.ndim))
    centre, divisor = (jnp.expand_dims(x, leading) for x in (moments.mean, deviation(moments)))
    dtype = leaf.dtype
    if dtype == jnp.uint8:
        divisor, dtype = jnp.maximum(divisor, _LEAST_OF_PIXELS), jnp.float16
    distances = (leaf.astype(jnp.float32) - centre) / divisor
    return jnp.clip(distances, -LIMIT, LIMIT).astype(dtype)


def _next_sum(gamma: float, previous: Array, timestep: TimeStep) -> Array:
    """R of a row, `[B]`, from that of the row before."""
    is_first = timestep.step_type == StepType.FIRST
    return jnp.where(is_first, 0.0, timestep.reward + gamma * previous)


def _before_batch(
    settings: Normalization, agent: Agent, state: AgentState, sequence: Sequence, weights: Array
) -> tuple[Sequence, Array]:
    """What the agent within goes through: all in the units in which the newest rows were acted."""
    params = state.params
    timestep = normalized(settings, params, sequence.steps.timestep)
    seen = Sequence(sequence.steps._replace(timestep=timestep), sequence.carry.agent)
    return agent.before_batch(state._replace(params=params.agent), seen, weights)


def _update(
    settings: Normalization,
    agent: Agent,
    state: AgentState,
    sequence: Sequence,
    weights: Array,
    key: Array,
    mean: Callable[[Tree], Tree],
) -> tuple[AgentState, UpdateOutput]:
    params = state.params
    own = state._replace(params=params.agent)
    own, output = agent.update(own, sequence, weights, key, mean=mean)
    if settings.rewards:
        metrics = {**output.metrics, "return_deviation": deviation(params.returns)}
        output = output._replace(metrics=metrics)
    return own._replace(params=params._replace(agent=own.params)), output


def _after_batch(
    settings: Normalization,
    agent: Agent,
    state: AgentState,
    sequence: Sequence,
    mean: Callable[[Tree], Tree],
) -> tuple[AgentState, Tree]:
    """The moments with those of the batch in them. If one is not finite, nothing is applied."""
    params, timestep = state.params, sequence.steps.timestep
    start, stop = agent.window.burn_in, agent.window.burn_in + agent.window.unroll
    rows = [
        leaf[start:stop]
        for leaf, is_normalized in _leaves(settings, timestep.observation)
        if is_normalized
    ]
    # LAST rows too: their values bootstrap.
    every_row = jnp.ones(timestep.reward[start:stop].shape, bool)
    observations = tuple(
        merged(old, moments_of(leaf, every_row, mean))
        for old, leaf in zip(params.observations, rows, strict=True)
    )
    returns: Any = params.returns
    if settings.rewards:
        # The reward of a trained row arrives on the next one, and with a FIRST row none does.
        sums = _sums(settings.gamma, sequence)[start + 1 : stop + 1]
        has_reward = timestep.step_type[start + 1 : stop + 1] != StepType.FIRST
        returns = merged(returns, moments_of(sums, has_reward, mean))
    new = params._replace(observations=observations, returns=returns)
    own = state._replace(params=params.agent)
    own, guarded = agent.after_batch(own, sequence._replace(carry=sequence.carry.agent), mean)
    state = own._replace(params=new._replace(agent=own.params))
    return state, (guarded, observations, returns)


def _sums(gamma: float, sequence: Sequence) -> Array:
    """R of every row, `[T, B]`, from that of the row before the sequence, which acting stored."""
    step_type, reward, discount, _ = sequence.steps.timestep

    def step(previous: Array, row: TimeStep) -> tuple[Array, Array]:
        present = _next_sum(gamma, previous, row)
        return present, present

    rows = TimeStep(step_type, reward, discount, ())
    return jax.lax.scan(step, sequence.carry.discounted_sum, rows)[1]
