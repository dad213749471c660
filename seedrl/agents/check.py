"""Agents and networks, a user's own included, checked once when they are built.

`jax.eval_shape` traces their functions: it computes and compiles nothing. A mistake that JAX
explains itself by the user's own line, such as a loss that is no scalar, is left to its traceback.
"""

import contextlib
import inspect
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from seedrl.agents.agent import (
    ActOutput,
    Agent,
    AgentConfig,
    AgentState,
    UpdateOutput,
)
from seedrl.agents.masks import masked
from seedrl.errors import ConfigError
from seedrl.hints import naming_own_code
from seedrl.networks.network import (
    GaussianAndValue,
    Network,
    NetworkInput,
    PolicyAndValue,
    num_outputs_of,
)
from seedrl.specs import ACTION_MASK, BoxSpec, DiscreteSpec, EnvSpec, TokensSpec
from seedrl.types import Array, Sequence, StoredStep, TimeStep, Tree

# B for each minibatch: unlike the number of time steps and of actions most agents have, so that
# axes in the wrong order show.
_BATCH = 3


def build_agent(config: AgentConfig, spec: EnvSpec) -> Agent:
    """The agent that `config` builds. Raises ConfigError as `check_agent` does."""
    # Only its functions of acting are checked. The learn step checks those of learning before it is
    # compiled: acting starts sooner without them.
    _require_takes("build", config.build, spec)
    with naming_own_code("agent.build"):
        agent = config.build(spec)
    _check_begun(agent, spec)
    _require(agent.window == config.window, "window", f"the config's {config.window}", agent.window)
    return agent


def check_agent(agent: Agent, spec: EnvSpec) -> None:
    """Raises ConfigError for the first function whose result is not as `Agent` says.

    The message has the field, the expected value and the one that came. An error that a user's own
    function raises becomes such a line, with its place in the user's file.
    """
    state, sequence = _check_begun(agent, spec)
    agent = checked(agent)
    sampled = _array((_BATCH * agent.minibatches,), "float32")
    batch, weights = jax.eval_shape(agent.preprocess_batch, state, sequence, sampled)
    # One minibatch, as the learner takes it: columns of the batch.
    size = len(weights) // agent.minibatches
    steps = jax.tree.map(lambda x: _array((x.shape[0], size, *x.shape[2:]), x.dtype), batch.steps)
    minibatch = Sequence(steps, _resized(batch.carry, size))
    begun = state._replace(env_steps=_array((), "float32"))  # as the learn step gives it
    weights = _array((size,), "float32")
    jax.eval_shape(_on_one_device(agent.update), begun, minibatch, weights, _KEY)
    jax.eval_shape(_on_one_device(agent.update_statistics), state, sequence, sampled)


def checked(agent: Agent) -> Agent:
    """The agent, whose functions of learning check their results as they are traced.

    They raise ConfigError as `check_agent` does.
    """

    def preprocess_batch(
        state: AgentState, sequence: Sequence, weights: Array
    ) -> tuple[Sequence, Array]:
        own = agent.preprocess_batch
        result, shapes = _called("preprocess_batch", own, state, sequence, weights)
        _, batch_weights = _pair("preprocess_batch", shapes, Sequence, object)
        chunked = _array((len(weights) * agent.chunks,), "float32")
        _require_like("preprocess_batch.weights", chunked, batch_weights)
        return result

    def update(
        state: AgentState,
        sequence: Sequence,
        weights: Array,
        key: Array,
        mean: Callable[[Tree], Tree],
    ) -> tuple[AgentState, UpdateOutput]:
        given = (state, sequence, weights, key)
        result, shapes = _called("update", agent.update, *given, mean=mean)
        new, output = _pair("update", shapes, AgentState, UpdateOutput)
        _require_like("update.state", *(each._replace(env_steps=()) for each in (state, new)))
        has_guarded = bool(jax.tree.leaves(output.guarded))
        _require(has_guarded, "update.guarded", "a number that must be finite, as the loss", ())
        for name, value in output.metrics.items():
            _require(not value.shape, f"update.metrics: {name!r}", "a scalar", value)
        if jax.tree.leaves(output.priorities):
            _require_like("update.priorities", _array(weights.shape, "float32"), output.priorities)
        return result

    def update_statistics(
        state: AgentState, sequence: Sequence, weights: Array, mean: Callable[[Tree], Tree]
    ) -> tuple[AgentState, Tree]:
        own = agent.update_statistics
        result, shapes = _called("update_statistics", own, state, sequence, weights, mean)
        new, _ = _pair("update_statistics", shapes, AgentState, object)
        _require_like("update_statistics.state", state, new)
        return result

    return agent._replace(
        preprocess_batch=preprocess_batch, update=update, update_statistics=update_statistics
    )


def check_acting(agent: Agent, spec: EnvSpec) -> Sequence:
    """As `check_agent`, for the functions that acting calls.

    Returns the shapes of a batch of sequences, `[T, B]`, as replay would give it.
    """
    _require(isinstance(agent, Agent), "build", "an Agent", agent)
    for name in ("epochs", "minibatches", "chunks"):
        _require(getattr(agent, name) >= 1, name, "at least 1", getattr(agent, name))
    params = _traced("init", agent.init, _KEY)
    carry = _carry_of("initial_carry", agent.initial_carry)
    stored = _traced("stored_carry", agent.stored_carry, carry)
    _require_batch("stored_carry", stored)

    actor_params = _traced("actor_params", agent.actor_params, params)
    exploration = _array((_BATCH,), "float32")
    timestep = _timestep(spec, (_BATCH,))
    output = _traced("act", agent.act, actor_params, carry, timestep, exploration, _KEY)
    _require(isinstance(output, ActOutput), "act", "an ActOutput", output)
    action = spec.action.array
    _require_like("act.action", _array((_BATCH, *action.shape), action.dtype), output.action)
    _require_like("act.carry", carry, output.carry)
    _require_batch("act.extras", output.extras)

    # What acting stores, `[B, ...]`, as the learner gets it, `[T, B, ...]`.
    columns = _BATCH * agent.minibatches
    size = (agent.window.length, columns)
    action, extras = jax.tree.map(
        lambda leaf: _array((*size, *leaf.shape[1:]), leaf.dtype), (output.action, output.extras)
    )
    steps = StoredStep(_timestep(spec, size), action, _array(size, "int32"), extras)
    return Sequence(steps, _resized(stored, columns))


def _check_begun(agent: Agent, spec: EnvSpec) -> tuple[AgentState, Sequence]:
    # All that is not of learning. Returns shapes: the first state, and a batch of sequences.
    sequence = check_acting(agent, spec)
    _require_takes("exploration", agent.exploration, 5)
    with naming_own_code("agent.exploration"):
        explorations = np.asarray(agent.exploration(5))  # of any number of slots
    _require(explorations.shape == (5,), "exploration", "[5] numbers", explorations)
    state = _traced("init_state", agent.init_state, _traced("init", agent.init, _KEY))
    _require(isinstance(state, AgentState), "init_state", "an AgentState", state)
    _require_like("init_state.updates", _array((), "int32"), state.updates)
    if agent.initial_priorities is not None:
        steps = sequence.steps
        unseen = steps._replace(timestep=steps.timestep._replace(observation=()))
        priorities = _traced("initial_priorities", agent.initial_priorities, unseen)
        columns = _array(steps.action.shape[1:2], "float32")
        _require_like("initial_priorities", columns, priorities)
    return state, sequence


# Networks. Shapes and dtypes of their output for one time step.


def q_values_of(num_actions: int) -> Tree:
    """The `output` of `build_network` for Q-values `[T, B, A] float32`."""
    return _array((num_actions,), "float32")


def policy_and_value_of(spec: EnvSpec) -> PolicyAndValue | GaussianAndValue:
    """The `output` of `build_network` for a policy over the actions of a spec.

    Raises ConfigError for token ids, which only agents for them generate.
    """
    if isinstance(spec.action, TokensSpec):
        raise ConfigError(
            f"agent: expected one for token ids (GRPOConfig), because the environment takes "
            f"{spec.action}"
        )
    value = _array((), "float32")
    numbers = _array((num_outputs_of(spec.action),), "float32")
    if isinstance(spec.action, BoxSpec):
        return GaussianAndValue(numbers, numbers, value)
    return PolicyAndValue(numbers, value)


def build_network(config: Any, spec: EnvSpec, output: Tree) -> Network:
    """The network that `config` builds, whose `unroll` gives `output` for each time step.

    It is built for observations without their action mask, which its output is masked by: see
    `seedrl.agents.masks`.

    `output`: shapes and dtypes for one time step, by one of the functions above. Raises ConfigError
    as `check_agent` does, and for a mask and an output that it does not fit.
    """
    seen = spec.without_mask()
    is_config = not isinstance(config, type) and callable(getattr(config, "build", None))
    _require(is_config, "network", "an instance of a config with build(spec)", config)
    _require_takes("network.build", config.build, seen)
    with naming_own_code("agent.network.build"):
        network = config.build(seen)
    _require(isinstance(network, Network), "network.build", "a Network", network)
    params = _traced("network.init", network.init, _KEY)
    carry = _carry_of("network.initial_carry", network.initial_carry)
    size = (2, _BATCH)  # two time steps: a missing axis of time shows
    timestep, action = _timestep(seen, size), spec.action.array
    previous_action = _array((*size, *action.shape), action.dtype)
    inputs = NetworkInput(
        timestep.observation, previous_action, timestep.reward, is_first=_array(size, "bool")
    )
    result = _traced("network.unroll", network.unroll, params, carry, inputs)
    given, next_carry = _pair("network.unroll", result, object, object)
    expected = jax.tree.map(lambda leaf: _array((*size, *leaf.shape), leaf.dtype), output)
    _require_like("network.unroll", expected, given)
    _require_like("network.unroll: carry", carry, next_carry)
    if not spec.has_mask:
        return network
    is_known = isinstance(output, PolicyAndValue)
    is_known = is_known or output == q_values_of(*spec.observation[ACTION_MASK].shape)
    expected = "Q-values or a PolicyAndValue, to which the environment's action mask applies"
    _require(is_known, "network.unroll", expected, given)
    return masked(network)


def num_actions_of(spec: EnvSpec, agent: str) -> int:
    """A, the number of actions. Raises ConfigError, which names the agent, if not Discrete."""
    if isinstance(spec.action, DiscreteSpec):
        return spec.action.num_actions
    raise ConfigError(
        f"agent: {agent} takes Discrete actions, the environment has {spec.action}; choose IMPALA "
        "or PPO (of a Box with bounds SAC, too)"
    )


# Shapes. A tree of `jax.ShapeDtypeStruct` stands for the arrays.


def _array(shape: tuple[int, ...], dtype: Any) -> jax.ShapeDtypeStruct:
    # As arrays of experience have them: without 64 bits.
    return jax.ShapeDtypeStruct(shape, jax.dtypes.canonicalize_dtype(dtype))


_KEY = _array((2,), "uint32")


def _timestep(spec: EnvSpec, size: tuple[int, ...]) -> TimeStep:
    leaves = [_array((*size, *leaf.shape), leaf.dtype) for _, leaf in spec.leaves()]
    reward = _array(size, "float32")
    return TimeStep(_array(size, "uint8"), reward, reward, spec.unflatten(leaves))


def _resized(tree: Tree, size: int) -> Tree:
    return jax.tree.map(lambda leaf: _array((size, *leaf.shape[1:]), leaf.dtype), tree)


def _on_one_device(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments: function(*arguments, mean=lambda tree: tree)


def _called(
    field: str, function: Callable[..., Any], *arguments: Any, **named: Any
) -> tuple[Any, Any]:
    # The result, and its shapes.
    _require_takes(field, function, *arguments, **named)
    with naming_own_code(f"agent.{field}"):
        result = function(*arguments, **named)
        return result, jax.eval_shape(lambda: result)


def _traced(field: str, function: Callable[..., Any], *arguments: Any) -> Any:
    _require_takes(field, function, *arguments)
    with naming_own_code(f"agent.{field}"):
        return jax.eval_shape(function, *arguments)


def _carry_of(field: str, function: Callable[[int], Tree]) -> Tree:
    _require_takes(field, function, _BATCH)
    carry = _traced(field, lambda: function(_BATCH))
    _require_batch(field, carry)
    return carry


def _require_takes(field: str, function: Any, *arguments: Any, **named: Any) -> None:
    # A call with too few or too many of them has no line of the user's own in its traceback.
    try:
        with contextlib.suppress(ValueError):  # a function in C may have no signature
            inspect.signature(function).bind(*arguments, **named)
    except TypeError as error:
        number = len(arguments) + len(named)
        text = f"agent.{field}: expected a function of {number} arguments: {error}"
        raise ConfigError(text) from error


def _require(is_right: bool, field: str, expected: str, got: Any) -> None:
    if not is_right:
        raise ConfigError(f"agent.{field}: expected {expected}, got {_shown(got)}")


def _pair(field: str, result: Any, *kinds: type) -> Any:
    is_pair = isinstance(result, tuple) and len(result) == 2 and all(map(isinstance, result, kinds))
    names = ", ".join("..." if kind is object else kind.__name__ for kind in kinds)
    _require(is_pair, field, f"({names})", result)
    return result


def _require_batch(field: str, tree: Tree) -> None:
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        name = f"{field}{jax.tree_util.keystr(path)}"
        _require(leaf.shape[:1] == (_BATCH,), name, f"a batch [{_BATCH}, ...]", leaf)


def _require_like(field: str, expected: Tree, got: Tree) -> None:
    # The containers first, then each leaf by its path.
    structures: list[Any] = [jax.tree.structure(tree) for tree in (expected, got)]
    if structures[0] != structures[1]:
        ours, theirs = map(_by_path, (expected, got))
        # The first array that one of them lacks: two large trees look alike where they are cut.
        lacking = [place for place in {**ours, **theirs} if (place in ours) != (place in theirs)]
        if lacking and "" not in lacking:  # neither is a single array
            here, there = (each.get(lacking[0], "nothing") for each in (ours, theirs))
            raise ConfigError(f"agent.{field}{lacking[0]}: expected {here}, got {there}")
        _require(False, field, _shown(expected), got)
    leaves = jax.tree.leaves(got)
    for (path, one), leaf in zip(
        jax.tree_util.tree_leaves_with_path(expected), leaves, strict=True
    ):
        name = f"{field}{jax.tree_util.keystr(path)}"
        _require(_shown(one) == _shown(leaf), name, _shown(one), leaf)


def _by_path(tree: Tree) -> dict[str, str]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path): _shown(leaf) for path, leaf in leaves}


def _shown(value: Any) -> str:
    # A tree in a message: `float32[2, 3]` for an array.
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{value.dtype}{list(value.shape)}"
    leaves = jax.tree.leaves(value)
    if not leaves or leaves[0] is value:
        return repr(value)[:80]
    return f"{type(value).__name__}({', '.join(map(_shown, leaves))})"[:120]
