"""Learning as one program per device: sample, loss, gradient, update and priority write-back."""

import functools
import math
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from learner.report.metric_table import RESERVED
from seedrl.agents.agent import Agent, AgentState, UpdateOutput
from seedrl.agents.check import checked
from seedrl.errors import ConfigError
from seedrl.replay.experience import Memory
from seedrl.types import Array, Page, Sequence, Tree

AXIS = "device"

# Numbers by name, in one array `[M] float32`: the host takes as long to fetch one number as all of
# them. The names are the keys, in alphabetical order, of a tree without leaves.
Numbers: TypeAlias = tuple[Array, Mapping[str, tuple[()]]]


class LearnerState(NamedTuple):
    """What learning owns, the same on every device: an AgentState's fields, and `key [2] uint32`.

    Flat, because checkpoints name what they hold by these fields.
    """

    params: Tree
    target: Tree
    optimizer: Tree
    updates: Array
    extras: Tree
    key: Array

    @property
    def agent(self) -> AgentState:
        """The agent's part."""
        return AgentState(*self[:-1])

    @classmethod
    def of(cls, agent: AgentState, key: Array) -> "LearnerState":
        """Of an agent's state and a key; what only one update sees is left out."""
        return cls(*agent._replace(env_steps=())[:-1], key)


class LearnPrograms(NamedTuple):
    """Per-device functions, before they are mapped over devices."""

    init: Callable[[Array], LearnerState]
    insert: Callable[[Tree, Page, Tree], Tree]  # (replay, pages [I, ...], plan) -> replay
    # (state, replay, draw, env_steps) -> (state, replay, numbers), `draw` from `Index.draw`;
    # `env_steps [] float32` are those of the run, for schedules. An update that is not finite is
    # skipped: the key moves on, and the sequences of its batch get the lowest priority.
    learn: Callable[[LearnerState, Tree, Tree, Array], tuple[LearnerState, Tree, Numbers]]
    actor_params: Callable[[Tree], Tree]  # see `Agent`


class OverDevices(NamedTuple):
    """Reductions over those devices of an axis that hold experience; of none, zeros."""

    mean: Callable[[Tree], Tree]  # what an agent's update gets as `mean`
    largest: Callable[[Array], Array]  # of floats []
    all_are: Callable[[Array], Array]  # [] bool -> [] bool


def over_devices(is_filled: Array, axis_name: str) -> OverDevices:
    """For a program that runs under the mapped axis; `is_filled`: `[] bool`, of this device."""
    # A single device makes no update before it holds experience, and gets plain means: those below
    # would be compiled to other roundings there, for nothing.
    if jax.lax.psum(1, axis_name) == 1:
        return OverDevices(
            functools.partial(jax.lax.pmean, axis_name=axis_name),
            functools.partial(jax.lax.pmax, axis_name=axis_name),
            lambda value: jax.lax.pmin(value.astype(jnp.int32), axis_name) > 0,
        )
    number = jnp.maximum(jax.lax.psum(is_filled.astype(jnp.float32), axis_name), 1.0)

    def mean_of(leaf: Array) -> Array:
        # Not a product: what an empty device computes may be NaN.
        total = jax.lax.psum(jnp.where(is_filled, leaf, jnp.zeros_like(leaf)), axis_name)
        is_float = jnp.issubdtype(total.dtype, jnp.floating)
        return total / (number.astype(total.dtype) if is_float else number)

    def all_are(value: Array) -> Array:
        return jax.lax.pmin((value | ~is_filled).astype(jnp.int32), axis_name) > 0

    return OverDevices(
        mean=lambda tree: jax.tree.map(mean_of, tree),
        largest=lambda value: jax.lax.pmax(jnp.where(is_filled, value, -jnp.inf), axis_name),
        all_are=all_are,
    )


def is_all_finite(guarded: Tree) -> Array:
    """True if all of it is finite, `[] bool`, on this device: all devices have to agree on it."""
    return functools.reduce(
        jnp.logical_and, [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(guarded)]
    )


def priorities_after(output: UpdateOutput, weights: Array, is_applied: Array) -> Array:
    """New priorities of the sequences of a batch, `[B] float32`; NaN keeps the old one."""
    (priorities,) = jax.tree.leaves(output.priorities) or (jnp.full_like(weights, jnp.nan),)
    if priorities.shape != weights.shape:
        # Chunk i of sequence b is at column i B + b: a sequence has the largest of its chunks.
        priorities = jnp.max(priorities.reshape(-1, *weights.shape), axis=0)
    # The sequences of a skipped update get 0, the lowest: otherwise the one that made it not finite
    # would be drawn again, as long as it is stored.
    return jnp.where(is_applied, priorities, 0.0)


def run_epochs(
    update: Callable[[AgentState, Sequence, Array, Array], tuple[AgentState, UpdateOutput]],
    state: AgentState,
    sequence: Sequence,
    weights: Array,
    key: Array,
    *,
    epochs: int,
    minibatches: int,
) -> tuple[AgentState, UpdateOutput]:
    """Calls `update` for each minibatch of each epoch, with the state that the one before left.

    One minibatch of one epoch is one call, of the batch as it is. Of several, the output has maxima
    and means of the metrics (see UpdateOutput), all that is guarded, and the priorities of the last
    epoch.

    Args:
      update: an agent's, with `mean` given.
      state: consumed.
      sequence: `[T, B]`, cut into chunks already.
      weights: `[B] float32`.
      key: consumed.
      epochs: how often the batch is learned from.
      minibatches: parts of equal size, of which B must be a multiple.
    """
    if epochs * minibatches == 1:
        return update(state, sequence, weights, key)
    shuffle_key, key = jax.random.split(key)
    shuffle = functools.partial(jax.random.permutation, x=weights.shape[0])
    shuffled = jax.vmap(shuffle)(jax.random.split(shuffle_key, epochs))

    def one_minibatch(
        state: AgentState, drawn: tuple[Array, Array]
    ) -> tuple[AgentState, UpdateOutput]:
        columns, key = drawn
        part = Sequence(
            steps=jax.tree.map(lambda leaf: leaf[:, columns], sequence.steps),
            carry=jax.tree.map(lambda leaf: leaf[columns], sequence.carry),
        )
        return update(state, part, weights[columns], key)

    columns = shuffled.reshape(epochs * minibatches, -1)
    keys = jax.random.split(key, len(columns))
    state, outputs = jax.lax.scan(one_minibatch, state, (columns, keys))
    metrics = {
        name: jnp.nanmax(values) if name.endswith("_max") else jnp.nanmean(values)
        for name, values in outputs.metrics.items()
    }
    priorities = jax.tree.map(
        lambda values: jnp.zeros_like(weights).at[shuffled[-1]].set(values[-minibatches:].ravel()),
        outputs.priorities,
    )
    return state, UpdateOutput(metrics, outputs.guarded, priorities)


def build_learn_programs(agent: Agent, memory: Memory, *, batch_per_device: int) -> LearnPrograms:
    """Builds the per-device functions; `learn` runs under a mapped axis called AXIS.

    Raises ConfigError if the agent's minibatches cannot be of equal size.
    """
    num_columns = batch_per_device * agent.chunks
    if num_columns % agent.minibatches:
        raise ConfigError(
            f"learning.batch_sequences (in synchronous runs --envs sets it, too): expected a "
            f"multiple of {agent.minibatches // math.gcd(agent.minibatches, agent.chunks)} on each "
            f"device, to divide it into {agent.minibatches} minibatches, got {batch_per_device}"
        )
    largest = functools.partial(jax.lax.pmax, axis_name=AXIS)
    agent = checked(agent)

    def learn(
        state: LearnerState, stored: Tree, draw: Tree, env_steps: Array
    ) -> tuple[LearnerState, Tree, Numbers]:
        # The stored key stays equal on all devices; the keys for drawing differ by device. It moves
        # on also if the update is skipped, or the same batch would be drawn again and again.
        next_key, key = jax.random.split(state.key)
        sample_key, update_key = jax.random.split(jax.random.fold_in(key, jax.lax.axis_index(AXIS)))
        sequence, weights, indices = memory.sample(stored, draw, sample_key, largest)
        # Only sequences of an empty shard have no weight at all.
        over = over_devices(jnp.any(weights > 0), AXIS)
        # Devices count equally in a mean: one with fewer sequences, as in a round without some
        # environments, would give each of its own too much weight.
        number = jnp.sum(weights > 0, dtype=jnp.float32)
        weights *= number / jnp.maximum(over.mean(number), 1.0)

        def update(
            state: AgentState, sequence: Sequence, weights: Array, key: Array
        ) -> tuple[AgentState, UpdateOutput]:
            # It only reads `env_steps`: whatever it returns there is dropped.
            state = state._replace(env_steps=env_steps)
            state, output = agent.update(state, sequence, weights, key, mean=over.mean)
            return state._replace(env_steps=()), output

        # Once for all epochs: what they learn from must not change between them.
        seen, seen_weights = agent.preprocess_batch(state.agent, sequence, weights)
        new, output = run_epochs(
            update,
            state.agent,
            seen,
            seen_weights,
            update_key,
            epochs=agent.epochs,
            minibatches=agent.minibatches,
        )
        new, guarded = agent.update_statistics(new, sequence, weights, over.mean)
        is_applied = over.all_are(is_all_finite((output.guarded, guarded)))
        new = new._replace(updates=state.updates + 1)  # an agent need not count
        # Skipped on the device: the host knows only when the numbers arrive, which is too late.
        new = jax.tree.map(lambda new, old: jnp.where(is_applied, new, old), new, state.agent)
        new_state = LearnerState.of(new, next_key)
        written = priorities_after(output, weights, is_applied)
        new_stored = memory.write_back(stored, indices, written)
        numbers = packed(
            {
                **_reduced(output.metrics, over),
                **_lag(agent, state.updates, sequence.steps.version, over),
                "skipped_updates": (~is_applied).astype(jnp.float32),
            }
        )
        return new_state, new_stored, numbers

    return LearnPrograms(
        functools.partial(initial_state, agent), memory.insert, learn, agent.actor_params
    )


def packed(numbers: Mapping[str, Array]) -> Numbers:
    """`numbers`, each `[]`, as a program hands them out; see `learner.learning.loop.fetched`."""
    names = sorted(numbers)
    values = jnp.stack([jnp.asarray(numbers[name], jnp.float32) for name in names])
    return values, dict.fromkeys(names, ())


def initial_state(agent: Agent, key: Array) -> LearnerState:
    """The state of a new run; traceable."""
    params_key, key = jax.random.split(key)
    return LearnerState.of(agent.init_state(agent.init(params_key)), key)


def _reduced(metrics: Mapping[str, Array], over: OverDevices) -> dict[str, Array]:
    """An agent's own numbers: maxima for names that end in `_max`, else means.

    Raises ConfigError, when it is traced, for a name that already means something else.
    """
    for name in sorted(RESERVED & metrics.keys()):
        raise ConfigError(
            f"agent.update: metric {name!r}: expected a name that the run does not use itself, "
            f"for the two could not be told apart; call it {f'agent_{name}'!r}, say"
        )

    def reduced(name: str, value: Array) -> Array:
        value = jnp.asarray(value, jnp.float32)
        is_measured = ~jnp.isnan(value)
        # Of the devices that measured it; NaN if none did.
        total, share = over.mean((jnp.where(is_measured, value, 0.0), jnp.float32(is_measured)))
        if not name.endswith("_max"):
            return total / share
        return jnp.where(share > 0, over.largest(jnp.where(is_measured, value, -jnp.inf)), jnp.nan)

    return {name: reduced(name, value) for name, value in metrics.items()}


def _lag(agent: Agent, updates: Array, versions: Array, over: OverDevices) -> dict[str, Array]:
    """Mean and largest number of updates between acting and consumption, over the trained rows."""
    # Of the burn-in nothing is learned.
    start, stop = agent.window.burn_in, agent.window.burn_in + agent.window.unroll
    lag = (updates - versions[start:stop]).astype(jnp.float32)
    return {
        "policy_lag_updates": over.mean(lag.mean()),
        "policy_lag_updates_max": over.largest(lag.max()),
    }
