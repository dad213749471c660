"""Running mean/std normalization of observations and rewards.

The statistics are part of the parameters: so acting in training, an evaluation or a policy by
itself uses those of its parameters' version, and checkpoints hold them.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

from seedrl.agents.agent import (
    ActOutput,
    Agent,
    AgentState,
    UpdateOutput,
)
from seedrl.agents.window import WindowSpec
from seedrl.errors import ConfigError
from seedrl.fields import Fraction, check_fields
from seedrl.observations import picture_axes
from seedrl.specs import ArraySpec, EnvSpec
from seedrl.types import Array, Sequence, StepType, StoredStep, TimeStep, Tree

# Added to a variance before its root is taken, as in the VecNormalize of Stable-Baselines3.
EPSILON = 1e-8
# Bound of normalized observations and rewards, in stds, as in VecNormalize.
LIMIT = 10.0
# Smallest std of a pixel, in grey levels of uint8: the first change of a pixel that has hardly ever
# changed is no larger an event than a change of others.
_SMALLEST_STD_OF_PIXELS = 0.5


@dataclass(frozen=True, kw_only=True)
class NormalizationConfig:
    """The inputs that an agent normalizes: part of the configuration of every agent.

    Attributes:
      gamma: discount of one step.
      normalize_observations: normalize floats, and integers without bounds, of an observation to
        mean 0 and std 1, clipped to plus or minus 10. The statistics are of the time steps trained
        so far.
      normalize_images: normalize pixels too, instead of dividing them by 255. Small and rare
        objects, such as a ball, are visible from the start.
      normalize_rewards: divide rewards by the std of their discounted sums so far, clipped to plus
        or minus 10. The network's inputs, scaling and training all use the result.
    """

    gamma: Fraction
    normalize_observations: bool = False
    normalize_images: bool = False
    normalize_rewards: bool = False

    def __post_init__(self) -> None:
        check_fields("agent.", self)

    def normalization(self, spec: EnvSpec) -> "Normalization":
        """The inputs that are normalized in environments of a spec."""
        observations, rewards = self.normalize_observations, self.normalize_rewards
        return Normalization(spec, observations, rewards, self.gamma, self.normalize_images)


# The arithmetic: statistics of one batch over all devices, and merging them.


class RunningStatistics(NamedTuple):
    """Mean and variance of all time steps so far."""

    # `[] float32`, in batches: the sum, over all batches, of the share of their time steps that
    # counted. So it is the same on any number of devices.
    count: Array
    mean: Array  # `[...] float32`
    variance: Array  # `[...] float32`, of the population: divided by the number of time steps


def empty_statistics(shape: tuple[int, ...]) -> RunningStatistics:
    return RunningStatistics(jnp.zeros(()), jnp.zeros(shape), jnp.zeros(shape))


def batch_statistics(
    values: Array, is_counted: Array, mean: Callable[[Tree], Tree]
) -> RunningStatistics:
    """Statistics of one batch, over all devices.

    `values [T, B, ...]` are this device's part of it, of equal size on all devices. Those that are
    not counted may be anything, NaN too. `mean` averages a tree over all devices.

    Source: Chan, Golub and LeVeque 1983, "Algorithms for computing the sample variance", equation
    1.7.
    """
    chex.assert_type(is_counted, bool)
    chex.assert_equal_shape_prefix([values, is_counted], 2)
    is_counted = is_counted.reshape(*is_counted.shape, *[1] * (values.ndim - 2))
    values = jnp.where(is_counted, values.astype(jnp.float32), 0.0)

    def average(values: Array) -> Array:
        return jnp.mean(values, axis=(0, 1), dtype=jnp.float32)

    # In two passes, the second of which corrects the mean of the first: values far from 0, or many
    # of them, cost no precision.
    share, total = mean((jnp.mean(is_counted, dtype=jnp.float32), average(values)))
    divisor = jnp.where(share > 0, share, 1.0)
    first = total / divisor
    distances = jnp.where(is_counted, values - first[None, None], 0.0)
    rest, squares = mean((average(distances), average(jnp.square(distances))))
    correction = rest / divisor
    variance = squares / divisor - jnp.square(correction)
    return RunningStatistics(share, first + correction, jnp.maximum(variance, 0.0))


def merged(old: RunningStatistics, new: RunningStatistics) -> RunningStatistics:
    """Statistics of the time steps of both, with w the share of `new` in their count.

      mean = mean_old + w δ,  δ = mean_new - mean_old
      variance = variance_old + w (variance_new - variance_old + (1 - w) δ²)

    Merging 100,000 batches whose mean is 10 stds from 0 is off by less than 1e-4 stds (measured).

    Source: Chan, Golub and LeVeque 1983, equation 2.1.
    """
    # In float32 a count stops growing after 2^24 batches: older time steps are slowly forgotten.
    count = old.count + new.count
    weight = new.count / jnp.where(count > 0, count, 1.0)
    distance = new.mean - old.mean
    # One small number is added to a large one, not two: each would be rounded, mostly one way.
    change = new.variance - old.variance + (1.0 - weight) * jnp.square(distance)
    return RunningStatistics(count, old.mean + weight * distance, old.variance + weight * change)


def std_of(statistics: RunningStatistics) -> Array:
    """The divisor, `[...] float32`: 1 before the first time step."""
    variance = jnp.where(statistics.count > 0, statistics.variance, 1.0)
    return jnp.sqrt(variance + EPSILON)


# The agent: any other, inside of one that shows it normalized time steps.


class NormalizedParams(NamedTuple):
    """Parameters of an agent, and the statistics by which its inputs are normalized."""

    agent: Tree  # its own parameters; in actor parameters, its own actor parameters
    observations: tuple[RunningStatistics, ...]  # of each normalized array, in wire order
    returns: RunningStatistics | tuple[()]  # `[]`, of discounted sums of rewards, or `()`


class NormalizedCarry(NamedTuple):
    """An agent's state from before a time step, and the rewards so far."""

    agent: Tree  # its own
    # `[B] float32`, or `()` if rewards are not normalized: R_t = r_t + γ R_{t-1}, over the rewards
    # of the episode as they arrived.
    discounted_sum: Array | tuple[()]


class NormalizedExtras(NamedTuple):
    """Stored with each time step when acting. Without normalization of rewards only the first."""

    agent: Tree  # its own
    discounted_sum: Array | tuple[()]  # R_t, `[B] float32`, from `NormalizedCarry`
    # `[B] float32`, as it was seen when acting: initial priorities compare it with values of then.
    reward: Array | tuple[()]


class Normalization(NamedTuple):
    """The inputs that are normalized, and clipped to plus or minus LIMIT."""

    spec: EnvSpec  # of the environments
    # Floats, and integers without bounds to scale by: (x - mean) / std, each element by itself.
    observations: bool
    rewards: bool  # divided by the std of their discounted sums, without subtracting a mean
    gamma: float  # discount of one step, of those sums
    images: bool = False  # each pixel by itself; a std is at least half a grey level

    def covers(self, leaf: ArraySpec) -> bool:
        """True if an array of the observation is normalized."""
        if leaf.dtype == "uint8":
            return self.images and picture_axes(leaf) is not None
        is_unbounded = "int" in leaf.dtype and not leaf.low
        return self.observations and (is_unbounded or leaf.dtype.startswith("float"))

    def leaves(self, observation: Tree) -> list[tuple[Array, bool]]:
        """Arrays of an observation, in wire order, each with True if it is normalized."""
        covered = [self.covers(leaf) for _, leaf in self.spec.leaves()]
        return list(zip(self.spec.flatten(observation), covered, strict=True))


def seen_by_agent(settings: Normalization) -> EnvSpec:
    """The spec that the inner agent is built for: normalized images are float16, 0 their mean."""
    # Their bounds hold no longer.
    leaves = [
        ArraySpec(leaf.shape, _dtype_of_normalized(leaf.dtype)) if settings.covers(leaf) else leaf
        for _, leaf in settings.spec.leaves()
    ]
    return dataclasses.replace(settings.spec, observation=settings.spec.unflatten(leaves))


def with_normalization(agent: Agent, settings: Normalization) -> Agent:
    """`agent`, acting on and learning from normalized time steps; itself if nothing is normalized.

    It must have been built for `seen_by_agent(settings)`. One that replays its experience counts a
    time step as often as it learns from it. Raises ConfigError if there is no image to normalize.
    """
    if not (settings.observations or settings.rewards or settings.images):
        return agent
    shapes = [leaf.shape for leaf in _normalized_leaves(settings)]

    def init(key: Array) -> NormalizedParams:
        returns = empty_statistics(()) if settings.rewards else ()
        return NormalizedParams(agent.init(key), tuple(map(empty_statistics, shapes)), returns)

    def initial_carry(batch_size: int) -> NormalizedCarry:
        sums = jnp.zeros(batch_size) if settings.rewards else ()
        return NormalizedCarry(agent.initial_carry(batch_size), sums)

    def act(
        actor_params: NormalizedParams,
        carry: NormalizedCarry,
        timestep: TimeStep,
        exploration: Array,
        key: Array,
    ) -> ActOutput:
        seen = normalized(settings, actor_params, timestep)
        output = agent.act(actor_params.agent, carry.agent, seen, exploration, key)
        sums: Any = carry.discounted_sum
        reward: Any = ()
        if settings.rewards:
            sums = _next_sum(settings.gamma, sums, timestep)  # of rewards as they arrived
            reward = seen.reward
        extras = NormalizedExtras(output.extras, sums, reward)
        return output._replace(carry=NormalizedCarry(output.carry, sums), extras=extras)

    def preprocess_batch(
        state: AgentState, sequence: Sequence, weights: Array
    ) -> tuple[Sequence, Array]:
        # By the statistics before this batch: one that the newest parameters acted is learned from
        # with the very statistics by which it was acted.
        params = _started(agent.window, state.params, sequence, weights)
        timestep = normalized(settings, params, sequence.steps.timestep)
        steps = sequence.steps._replace(timestep=timestep, extras=sequence.steps.extras.agent)
        seen = sequence._replace(steps=steps)
        return agent.preprocess_batch(state._replace(params=params.agent), seen, weights)

    def update(
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
            metrics = {**output.metrics, "return_std": std_of(params.returns)}
            output = output._replace(metrics=metrics)
        return own._replace(params=params._replace(agent=own.params)), output

    def update_statistics(
        state: AgentState, sequence: Sequence, weights: Array, mean: Callable[[Tree], Tree]
    ) -> tuple[AgentState, Tree]:
        # Once for each batch, after its last epoch. If a statistic is not finite, nothing of the
        # update is applied.
        new = _with_batch(settings, agent.window, state.params, sequence, weights, mean)
        own = state._replace(params=state.params.agent)
        steps = sequence.steps._replace(extras=sequence.steps.extras.agent)
        inner = sequence._replace(steps=steps)
        own, guarded = agent.update_statistics(own, inner, weights, mean)
        state = own._replace(params=new._replace(agent=own.params))
        return state, (guarded, new.observations, new.returns)

    return agent._replace(
        init=init,
        initial_carry=initial_carry,
        act=act,
        init_state=lambda params: agent.init_state(params.agent)._replace(params=params),
        preprocess_batch=preprocess_batch,
        update=update,
        update_statistics=update_statistics,
        initial_priorities=_initial_priorities(agent, settings),
        stored_carry=lambda carry: agent.stored_carry(carry.agent),
        actor_params=lambda params: params._replace(agent=agent.actor_params(params.agent)),
    )


def _initial_priorities(
    agent: Agent, settings: Normalization
) -> Callable[[StoredStep], Array] | None:
    if (own := agent.initial_priorities) is None:
        return None

    def initial_priorities(steps: StoredStep) -> Array:
        timestep, extras = steps.timestep, steps.extras
        if settings.rewards:
            timestep = timestep._replace(reward=extras.reward)
        return own(steps._replace(timestep=timestep, extras=extras.agent))

    return initial_priorities


def _normalized_leaves(settings: Normalization) -> list[ArraySpec]:
    found = [leaf for _, leaf in settings.spec.leaves() if settings.covers(leaf)]
    if settings.images and all(leaf.dtype != "uint8" for leaf in found):
        leaves = settings.spec.leaves()
        seen = ", ".join(f"{path} {leaf.dtype}{list(leaf.shape)}" for path, leaf in leaves)
        raise ConfigError(
            "agent.normalize_images: expected a picture (uint8) in the observation, "
            f"got {seen}; leave it False"
        )
    return found


def _with_batch(
    settings: Normalization,
    window: WindowSpec,
    params: NormalizedParams,
    sequence: Sequence,
    weights: Array,
    mean: Callable[[Tree], Tree],
) -> NormalizedParams:
    # The statistics of `params`, and of the trained time steps of a batch.
    timestep, start, stop = sequence.steps.timestep, window.burn_in, window.burn_in + window.unroll
    covered = [leaf for leaf, is_covered in settings.leaves(timestep.observation) if is_covered]
    # LAST steps count too: their values bootstrap.
    is_counted = jnp.broadcast_to((weights > 0)[None], (stop - start, *weights.shape))
    observations = tuple(
        merged(old, batch_statistics(leaf[start:stop], is_counted, mean))
        for old, leaf in zip(params.observations, covered, strict=True)
    )
    returns: Any = params.returns
    if settings.rewards:
        returns = merged(returns, _returns_of(window, sequence, weights, mean))
    return params._replace(observations=observations, returns=returns)


def _started(
    window: WindowSpec, params: NormalizedParams, sequence: Sequence, weights: Array
) -> NormalizedParams:
    # Before the first batch there are no statistics: rewards of hundreds would set values and
    # policy far off. So the rewards of the first batch are divided by the std of its own sums. Each
    # device uses that of its part: only gradients, which are averaged, depend on it.
    if not isinstance(params.returns, RunningStatistics):
        return params
    first = _returns_of(window, sequence, weights, mean=lambda tree: tree)
    is_first = params.returns.count == 0
    returns = jax.tree.map(lambda new, old: jnp.where(is_first, new, old), first, params.returns)
    return params._replace(returns=returns)


def _returns_of(
    window: WindowSpec, sequence: Sequence, weights: Array, mean: Callable[[Tree], Tree]
) -> RunningStatistics:
    # Of discounted sums. The reward of a trained step arrives with the next one, none with FIRST.
    rewarded = slice(window.burn_in + 1, window.burn_in + window.unroll + 1)
    sums = sequence.steps.extras.discounted_sum[rewarded]
    has_reward = sequence.steps.timestep.step_type[rewarded] != StepType.FIRST
    return batch_statistics(sums, has_reward & (weights > 0)[None], mean)


def normalized(settings: Normalization, params: NormalizedParams, timestep: TimeStep) -> TimeStep:
    """A time step, leaves `[..., ...]`, normalized by the statistics of `params`."""
    statistics = iter(params.observations)
    seen = [
        _standardized(leaf, next(statistics)) if is_covered else leaf
        for leaf, is_covered in settings.leaves(timestep.observation)
    ]
    timestep = timestep._replace(observation=settings.spec.unflatten(seen))
    if settings.rewards:
        assert isinstance(params.returns, RunningStatistics)
        reward = timestep.reward / std_of(params.returns)
        timestep = timestep._replace(reward=jnp.clip(reward, -LIMIT, LIMIT))
    return timestep


def _standardized(leaf: Array, statistics: RunningStatistics) -> Array:
    leading = tuple(range(leaf.ndim - statistics.mean.ndim))
    mean, std = (jnp.expand_dims(x, leading) for x in (statistics.mean, std_of(statistics)))
    if leaf.dtype == jnp.uint8:
        std = jnp.maximum(std, _SMALLEST_STD_OF_PIXELS)
    distances = (leaf.astype(jnp.float32) - mean) / std
    return jnp.clip(distances, -LIMIT, LIMIT).astype(_dtype_of_normalized(str(leaf.dtype)))


def _dtype_of_normalized(dtype: str) -> str:
    # float16 holds all of -10 to 10 that an image needs, in twice its bytes.
    if dtype == "uint8":
        return "float16"
    return dtype if dtype.startswith("float") else "float32"


def _next_sum(gamma: float, previous: Array, timestep: TimeStep) -> Array:
    # R of a time step, `[B]`, from R of the step before.
    is_first = timestep.step_type == StepType.FIRST
    return jnp.where(is_first, 0.0, timestep.reward + gamma * previous)
