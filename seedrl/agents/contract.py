"""An agent that keeps the contract of `Agent`, or says in one line where it does not."""

import functools
from collections.abc import Callable, Mapping

import jax
import numpy as np

from seedrl.agents.agent import ActOutput, Agent, AgentConfig, AgentState, Update, UpdateOutput
from seedrl.contracts.calls import call
from seedrl.contracts.results import checked_init, checked_initial_carry, require_pair
from seedrl.contracts.shapes import (
    METRICS,
    NUMBERS,
    require_array,
    require_arrays,
    require_rows,
    require_same,
    shown,
)
from seedrl.errors import ConfigError
from seedrl.specs import ArraySpec, EnvSpec
from seedrl.types import Array, Sequence, StoredStep, TimeStep, Tree


def build_agent(config: AgentConfig, spec: EnvSpec) -> Agent:
    """The agent that `config` builds, whose functions look at shapes when called or traced.

    That costs a compiled program nothing, and every mistake shows where it is traced anyway.

    Raises ConfigError, as the agent's functions do, for what code of a user's own raises, and for
    results of other shapes, dtypes or classes than `Agent` says: one line, that names the field.
    """
    what = _what(config, "build")
    agent = call(what, config.build, spec, own=config)
    if not isinstance(agent, Agent):
        raise ConfigError(f"{what}: expected a seedrl.agents.agent.Agent, got {shown(agent)}")
    if agent.window != config.window:
        raise ConfigError(f"{what}: expected the config's {config.window}, got {agent.window}")
    if min(agent.passes) < 1:
        what = _what(config, "passes")
        raise ConfigError(f"{what}: expected at least 1 of each, got {agent.passes}")
    what = _what(config, "evaluation_exploration")
    require_array(what, agent.evaluation_exploration, (), NUMBERS, "evaluation slots share it")
    return agent._replace(
        init=functools.partial(checked_init, _what(config, "init"), config, agent.init),
        initial_carry=functools.partial(
            checked_initial_carry, _what(config, "initial_carry"), config, agent.initial_carry
        ),
        act=functools.partial(_act, config, agent.act, spec.action.array),
        exploration=functools.partial(_exploration, config, agent.exploration),
        init_state=functools.partial(_init_state, config, agent.init_state),
        update=functools.partial(_update, config, agent.update),
        before_batch=functools.partial(_before_batch, config, agent),
        after_batch=functools.partial(_after_batch, config, agent.after_batch),
        initial_priorities=functools.partial(_initial_priorities, config, agent.initial_priorities),
        stored_carry=functools.partial(_stored_carry, config, agent.stored_carry),
        behaviour=functools.partial(_behaviour, config, agent.behaviour),
    )


def _what(config: AgentConfig, field: str) -> str:
    return f"agent.{field} ({type(config).__name__})"


def _act(
    config: AgentConfig,
    function: Callable[..., ActOutput],
    action: ArraySpec,
    behaviour: Tree,
    carry: Tree,
    timestep: TimeStep,
    exploration: Array,
    key: Array,
) -> ActOutput:
    what = _what(config, "act")
    output = call(what, function, behaviour, carry, timestep, exploration, key, own=config)
    if not isinstance(output, ActOutput):
        raise ConfigError(f"{what}: expected ActOutput(action, carry, extras), got {shown(output)}")
    (num_rows,) = timestep.reward.shape
    advice = "that is what the environment takes, of each row of the batch"
    shape = (num_rows, *action.shape)
    require_array(f"{what}: action", output.action, shape, [action.dtype], advice)
    advice = "it must be as initial_carry gives it"
    require_same(f"{what}: carry", carry, output.carry, advice)
    require_rows(f"{what}: extras", output.extras, num_rows)
    return output


def _exploration(
    config: AgentConfig, function: Callable[[int], np.ndarray], num_slots: int
) -> np.ndarray:
    what = _what(config, "exploration")
    found = np.asarray(call(what, function, num_slots, own=config))
    advice = "that is one number for each of the training slots"
    require_array(what, found, (num_slots,), NUMBERS, advice)
    return found


def _init_state(
    config: AgentConfig, function: Callable[[Tree], AgentState], params: Tree
) -> AgentState:
    what = _what(config, "init_state")
    state = call(what, function, params, own=config)
    if not isinstance(state, AgentState):
        raise ConfigError(f"{what}: expected an AgentState, got {shown(state)}")
    require_arrays(what, state)
    require_array(f"{what}.updates", state.updates, (), ["int32"], "it counts updates, from 0")
    return state


def _update(
    config: AgentConfig,
    function: Update,
    state: AgentState,
    sequence: Sequence,
    weights: Array,
    key: Array,
    mean: Callable[[Tree], Tree],
) -> tuple[AgentState, UpdateOutput]:
    what = _what(config, "update")
    result = call(what, function, state, sequence, weights, key, mean=mean, own=config)
    require_pair(what, result, (AgentState, UpdateOutput), "(AgentState, UpdateOutput)")
    new, output = result
    require_same(f"{what}: state", state, new, "an update keeps the shapes of what it learns")
    if not jax.tree.leaves(output.guarded):
        raise ConfigError(
            f"{what}: guarded: expected at least one number, such as the loss, that tells whether "
            f"the update is finite, got {shown(output.guarded)}"
        )
    require_arrays(f"{what}: guarded", output.guarded)
    _require_metrics(what, output.metrics)
    if jax.tree.leaves(output.priorities):
        advice = "one for each sequence of the batch, or () to leave them"
        shape = weights.shape
        require_array(f"{what}: priorities", output.priorities, shape, ["float32"], advice)
    return new, output


def _before_batch(
    config: AgentConfig, agent: Agent, state: AgentState, sequence: Sequence, weights: Array
) -> tuple[Sequence, Array]:
    what = _what(config, "before_batch")
    result = call(what, agent.before_batch, state, sequence, weights, own=config)
    require_pair(what, result, (Sequence, object), "(Sequence, weights)")
    seen, seen_weights = result
    num_columns = weights.shape[0] * agent.passes.pieces
    advice = "one for each sequence of the batch, times passes.pieces"
    require_array(f"{what}: weights", seen_weights, (num_columns,), ["float32"], advice)
    require_rows(f"{what}: carry", seen.carry, num_columns)
    return seen, seen_weights


def _after_batch(
    config: AgentConfig,
    function: Callable[..., tuple[AgentState, Tree]],
    state: AgentState,
    sequence: Sequence,
    mean: Callable[[Tree], Tree],
) -> tuple[AgentState, Tree]:
    what = _what(config, "after_batch")
    result = call(what, function, state, sequence, mean, own=config)
    require_pair(what, result, (AgentState, object), "(AgentState, guarded)")
    new, guarded = result
    require_same(f"{what}: state", state, new, "it keeps the shapes of what there is")
    require_arrays(f"{what}: guarded", guarded)
    return new, guarded


def _require_metrics(what: str, metrics: Mapping[str, Array]) -> None:
    if not isinstance(metrics, Mapping):
        raise ConfigError(f"{what}: metrics: expected numbers by name, got {shown(metrics)}")
    for name, value in metrics.items():
        if not isinstance(name, str):
            raise ConfigError(f"{what}: metrics: expected names that are texts, got {name!r}")
        advice = "take its mean, say; a name that ends in _max is a maximum over devices"
        require_array(f"{what}: metric {name!r}", value, (), METRICS, advice)


def _initial_priorities(
    config: AgentConfig, function: Callable[[StoredStep], Array], steps: StoredStep
) -> Array:
    what = _what(config, "initial_priorities")
    priorities = call(what, function, steps, own=config)
    shape = steps.timestep.reward.shape[1:]
    require_array(what, priorities, shape, ["float32"], "one for each sequence of steps [T, B]")
    return priorities


def _stored_carry(config: AgentConfig, function: Callable[[Tree], Tree], carry: Tree) -> Tree:
    what = _what(config, "stored_carry")
    stored = call(what, function, carry, own=config)
    num_rows = [leaf.shape[0] for leaf in jax.tree.leaves(carry)]
    require_rows(what, stored, num_rows[0] if num_rows else 0)
    return stored


def _behaviour(config: AgentConfig, function: Callable[[Tree], Tree], params: Tree) -> Tree:
    return call(_what(config, "behaviour"), function, params, own=config)
