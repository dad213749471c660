"""Learning as one program per device: sample, loss, gradient, update and priority write-back."""

import functools
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from learner.learning.epochs import run_epochs
from learner.learning.finite_guard import is_all_finite, priorities_after
from learner.learning.over_devices import OverDevices, over_devices
from learner.reporting.metric_table import RESERVED
from seedrl.agents.agent import Agent, AgentState
from seedrl.agents.check import check_learning
from seedrl.errors import ConfigError
from seedrl.replay.experience import Memory
from seedrl.types import Array, Page, Tree

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


class LearnPrograms(NamedTuple):
    """Per-device functions, before they are mapped over devices.

    Attributes:
      init: `key -> LearnerState`.
      insert: `(replay, pages [I, ...], plan) -> replay`.
      actor_params: see `Agent`.
      learn: `(state, replay, draw, is_enabled) -> (state, replay, numbers)`, `draw` as `Index.draw`
        gives it. An update that is not finite is skipped: the key moves on, and the sequences of
        its batch are drawn last from then on. With `is_enabled` False nothing changes: that
        compiles and warms up the program without learning from it.
    """

    init: Callable[[Array], LearnerState]
    insert: Callable[[Tree, Page, Tree], Tree]
    learn: Callable[[LearnerState, Tree, Tree, Array], tuple[LearnerState, Tree, Numbers]]
    actor_params: Callable[[Tree], Tree]


def build_learn_programs(agent: Agent, memory: Memory, *, batch_per_device: int) -> LearnPrograms:
    """Builds the per-device functions; `learn` runs under a mapped axis called AXIS.

    Raises ConfigError if the agent's minibatches cannot be of equal size.
    """
    _require_equal_parts(agent, batch_per_device)
    largest = functools.partial(jax.lax.pmax, axis_name=AXIS)

    def learn(
        state: LearnerState, stored: Tree, draw: Tree, is_enabled: Array
    ) -> tuple[LearnerState, Tree, Numbers]:
        # The stored key stays equal on all devices; what each device draws differs by its index.
        next_key, key = jax.random.split(state.key)
        sample_key, update_key = jax.random.split(jax.random.fold_in(key, jax.lax.axis_index(AXIS)))
        sequence, weights, places = memory.sample(stored, draw, sample_key, largest)
        check_learning(agent, state.agent, sequence)  # once, when this is traced
        # Only what an empty shard gives weighs nothing throughout.
        over = over_devices(jnp.any(weights > 0), AXIS)
        update = functools.partial(agent.update, mean=over.mean)
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
        new, guarded = agent.update_statistics(new, sequence, over.mean)
        is_finite = over.all_are(is_all_finite((output.guarded, guarded)))
        is_applied = is_finite & is_enabled
        new = new._replace(updates=state.updates + 1)
        new = jax.tree.map(lambda new, old: jnp.where(is_applied, new, old), new, state.agent)
        # With the key of a skipped update the same batch would be drawn again, for ever.
        key = jnp.where(is_enabled, next_key, state.key)
        new_state = LearnerState._make((*new, key))
        written = priorities_after(output, weights, is_applied, is_enabled)
        new_stored = memory.write_back(stored, places, written)
        numbers = packed(
            {
                **_reduced(output.metrics, over),
                **_lag(agent, state.updates, sequence.steps.version, over),
                "skipped_updates": (~is_finite & is_enabled).astype(jnp.float32),
            }
        )
        return new_state, new_stored, numbers

    return LearnPrograms(
        functools.partial(initial_state, agent), memory.insert, learn, agent.actor_params
    )


def _require_equal_parts(agent: Agent, batch_per_device: int) -> None:
    num_columns = batch_per_device * agent.chunks
    if num_columns % agent.minibatches:
        cut = f", of sequences that are cut into {agent.chunks} chunks," if agent.chunks > 1 else ""
        raise ConfigError(
            f"learning.batch_sequences: expected a multiple of the agent's {agent.minibatches} "
            f"minibatches on each device{cut} got {num_columns}"
        )


def packed(numbers: Mapping[str, Array]) -> Numbers:
    """`numbers`, each `[]`, as a program hands them out; see `learner.learning.loop.fetched`."""
    names = sorted(numbers)
    values = jnp.stack([jnp.asarray(numbers[name], jnp.float32) for name in names])
    return values, dict.fromkeys(names, ())


def initial_state(agent: Agent, key: Array) -> LearnerState:
    """What learning begins with; traceable."""
    params_key, key = jax.random.split(key)
    return LearnerState._make((*agent.init_state(agent.init(params_key)), key))


def _reduced(metrics: Mapping[str, Array], over: OverDevices) -> dict[str, Array]:
    """An agent's own numbers: maxima for names that end in `_max`, else means.

    Raises ConfigError, when it is traced, for a name that already means something else.
    """
    for name in sorted(RESERVED & metrics.keys()):
        raise ConfigError(
            f"agent.update: metric {name!r}: expected a name that the run does not use itself, "
            f"for the two could not be told apart; call it {f'agent_{name}'!r}, say"
        )
    return {
        name: (over.largest if name.endswith("_max") else over.mean)(
            jnp.asarray(value, jnp.float32)
        )
        for name, value in metrics.items()
    }


def _lag(agent: Agent, updates: Array, versions: Array, over: OverDevices) -> dict[str, Array]:
    """Mean and largest number of updates between acting and consumption, over the trained rows."""
    start, stop = agent.window.burn_in, agent.window.burn_in + agent.window.unroll
    lag = (updates - versions[start:stop]).astype(jnp.float32)
    return {
        "policy_lag_updates": over.mean(lag.mean()),
        "policy_lag_updates_max": over.largest(lag.max()),
    }
