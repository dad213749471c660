"""Agents and networks, a user's own included, checked once when they are built.

Their functions are traced with `jax.eval_shape`: that computes nothing, compiles nothing, and finds
a wrong class, shape or dtype before anything is acted on. Compiled programs are traced from the
same functions, so nothing is checked again later.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from seedrl.agents.agent import (
    ActOutput,
    Agent,
    AgentConfig,
    AgentState,
    UpdateOutput,
    no_initial_priorities,
)
from seedrl.agents.gradient_update import GradientUpdate, LossOutput
from seedrl.errors import ConfigError, naming_own_code
from seedrl.networks.network import GaussianAndValue, Network, NetworkInput, PolicyAndValue
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec
from seedrl.types import Sequence, StoredStep, TimeStep, Tree

# B for each minibatch: unlike the number of time steps and of actions most agents have, so that
# axes in the wrong order show.
_BATCH = 3


def build_agent(config: AgentConfig, spec: EnvSpec) -> Agent:
    """The agent that `config` builds, whose functions of acting are checked.

    The functions of learning are checked by the learn step before it is compiled: acting starts
    sooner without them.

    Raises ConfigError as `check_agent` does.
    """
    with naming_own_code("agent.build"):
        agent = config.build(spec)
    _check_acting(agent, spec)
    _expect(agent.window == config.window, "window", f"the config's {config.window}", agent.window)
    return agent


def check_agent(agent: Agent, spec: EnvSpec) -> None:
    """Raises ConfigError for the first function whose result is not as `Agent` says.

    The message has the field, the expected value and the one that came. An error that a user's own
    function raises becomes such a line, with its place in the user's file.
    """
    check_learning(agent, *_check_acting(agent, spec))


def _check_acting(agent: Agent, spec: EnvSpec) -> tuple[AgentState, Sequence]:
    """Returns shapes: the first state, and a batch of sequences as replay would give it."""
    _is_a(Agent, "build", agent)
    for name in ("epochs", "minibatches", "chunks"):
        _expect(getattr(agent, name) >= 1, name, "at least 1", getattr(agent, name))
    params = _shapes("init", agent.init, _KEY)
    carry = _shapes("initial_carry", lambda: agent.initial_carry(_BATCH))
    _has_rows("initial_carry", carry, _BATCH)
    stored = _shapes("stored_carry", agent.stored_carry, carry)
    _has_rows("stored_carry", stored, _BATCH)

    actor_params = _shapes("actor_params", agent.actor_params, params)
    exploration = _array((_BATCH,), "float32")
    timestep = _timestep(spec, (_BATCH,))
    output: ActOutput = _shapes("act", agent.act, actor_params, carry, timestep, exploration, _KEY)
    _is_a(ActOutput, "act", output)
    action = spec.action.array
    _is_like("act.action", _array((_BATCH, *action.shape), action.dtype), output.action)
    _is_like("act.carry", carry, output.carry)
    _has_rows("act.extras", output.extras, _BATCH)

    with naming_own_code("agent.exploration"):
        explorations = np.asarray(agent.exploration(5))
    _expect(explorations.shape == (5,), "exploration", "[5] numbers", explorations)
    quiet = agent.evaluation_exploration
    _expect(not np.shape(quiet), "evaluation_exploration", "a number", quiet)
    state: AgentState = _shapes("init_state", agent.init_state, params)
    _is_a(AgentState, "init_state", state)
    _is_like("init_state.updates", _array((), "int32"), state.updates)

    length, num_columns = agent.window.length, _BATCH * agent.minibatches
    action, extras = jax.tree.map(
        lambda leaf: _array((length, num_columns, *leaf.shape[1:]), leaf.dtype),
        (output.action, output.extras),
    )
    version = _array((length, num_columns), "int32")
    steps = StoredStep(_timestep(spec, (length, num_columns)), action, version, extras)
    if agent.initial_priorities is not no_initial_priorities:
        unseen = steps._replace(timestep=steps.timestep._replace(observation=()))
        priorities = _shapes("initial_priorities", agent.initial_priorities, unseen)
        _is_like("initial_priorities", _array((num_columns,), "float32"), priorities)
    return state, Sequence(steps, _with_rows(stored, num_columns))


def check_learning(agent: Agent, state: AgentState, sequence: Sequence) -> None:
    """Raises ConfigError for the first function of learning whose result is not as `Agent` says.

    Args:
      agent: checked for acting.
      state: arrays, or their shapes.
      sequence: a batch of this agent, `[T, B]`, with B a multiple of `minibatches`; or its shapes.
    """
    state, sequence = jax.eval_shape(lambda: (state, sequence))
    num_columns = sequence.steps.action.shape[1]
    weights = _array((num_columns,), "float32")
    result = _shapes("preprocess_batch", agent.preprocess_batch, state, sequence, weights)
    seen, seen_weights = _pair("preprocess_batch", result, Sequence)
    chunked = _with_rows(weights, num_columns * agent.chunks)
    _is_like("preprocess_batch.weights", chunked, seen_weights)

    # One minibatch, as the learner takes it: columns of the batch.
    size = num_columns * agent.chunks // agent.minibatches
    part = Sequence(
        jax.tree.map(lambda x: _array((x.shape[0], size, *x.shape[2:]), x.dtype), seen.steps),
        _with_rows(seen.carry, size),
    )
    update = agent.update
    if isinstance(update, GradientUpdate):
        update = update._replace(loss=_checked_loss(update.loss))
    weights = _array((size,), "float32")
    result = _shapes("update", _on_one_device(update), state, part, weights, _KEY)
    new, output = _pair("update", result, AgentState, UpdateOutput)
    _is_like("update.state", state, new)
    _check_output(output, size)

    result = _shapes("update_statistics", _on_one_device(agent.update_statistics), state, sequence)
    new, _ = _pair("update_statistics", result, AgentState)
    _is_like("update_statistics.state", state, new)


def _checked_loss(loss: Callable[..., Any]) -> Callable[..., Any]:
    # While it is traced, because jax explains a loss that is no scalar by its own frames only.
    def checked(*arguments: Any) -> Any:
        result = loss(*arguments)
        value, _ = _pair("update.loss", result, object, LossOutput)
        is_scalar = not jnp.shape(value) and jnp.issubdtype(value.dtype, jnp.floating)
        _expect(is_scalar, "update.loss", "float32[], the mean over the batch", value)
        return result

    return checked


def _check_output(output: UpdateOutput, size: int) -> None:
    guarded, metrics = output.guarded, output.metrics
    has_guarded = bool(jax.tree.leaves(guarded))
    _expect(has_guarded, "update.guarded", "a number that must be finite, as the loss", guarded)
    is_named = isinstance(metrics, Mapping) and all(isinstance(name, str) for name in metrics)
    _expect(is_named, "update.metrics", "scalars by name", metrics)
    for name, value in metrics.items():
        _expect(not value.shape, f"update.metrics: {name!r}", "a scalar", value)
    if jax.tree.leaves(output.priorities):
        _is_like("update.priorities", _array((size,), "float32"), output.priorities)


# Networks.


def q_values_of(num_actions: int) -> Tree:
    """The `output` of `build_network` for Q-values `[T, B, A] float32`."""
    return _array((num_actions,), "float32")


def policy_and_value_of(num_actions: int) -> PolicyAndValue:
    """The `output` of `build_network` for a policy over A actions."""
    return PolicyAndValue(_array((num_actions,), "float32"), _array((), "float32"))


def gaussian_and_value_of(num_numbers: int) -> GaussianAndValue:
    """The `output` of `build_network` for a policy over D real numbers."""
    numbers = _array((num_numbers,), "float32")
    return GaussianAndValue(numbers, numbers, _array((), "float32"))


def build_network(config: Any, spec: EnvSpec, output: Tree) -> Network:
    """The network that `config` builds, whose `unroll` gives `output` for each time step.

    Args:
      config: the value of `agent.network`.
      spec: of the environment.
      output: shapes and dtypes for one time step, by one of the functions above.

    Raises ConfigError as `check_agent` does.
    """
    is_config = not isinstance(config, type) and callable(getattr(config, "build", None))
    _expect(is_config, "network", "an instance of a config with build(spec)", config)
    with naming_own_code("agent.network.build"):
        network = config.build(spec)
    _is_a(Network, "network.build", network)
    params = _shapes("network.init", network.init, _KEY)
    carry = _shapes("network.initial_carry", lambda: network.initial_carry(_BATCH))
    _has_rows("network.initial_carry", carry, _BATCH)
    rows = (2, _BATCH)
    timestep = _timestep(spec, rows)
    action = spec.action.array
    inputs = NetworkInput(
        observation=timestep.observation,
        previous_action=_array((*rows, *action.shape), action.dtype),
        reward=timestep.reward,
        is_first=_array(rows, "bool"),
    )
    result = _shapes("network.unroll", network.unroll, params, carry, inputs)
    given, next_carry = _pair("network.unroll", result)
    expected = jax.tree.map(lambda leaf: _array((*rows, *leaf.shape), leaf.dtype), output)
    _is_like("network.unroll", expected, given)
    _is_like("network.unroll: carry", carry, next_carry)
    return network


def num_actions_of(spec: EnvSpec, agent: str) -> int:
    """A, the number of actions. Raises ConfigError, which names the agent, for a box of them."""
    if isinstance(spec.action, DiscreteSpec):
        return spec.action.num_actions
    raise ConfigError(
        f"agent: {agent} chooses among discrete actions, the environment has a box of shape "
        f"{list(spec.action.shape)}; choose an agent for continuous actions"
    )


# Shapes. A tree of `jax.ShapeDtypeStruct` stands for the arrays.


def _array(shape: tuple[int, ...], dtype: Any) -> jax.ShapeDtypeStruct:
    # As arrays of experience have them: without 64 bits.
    return jax.ShapeDtypeStruct(shape, jax.dtypes.canonicalize_dtype(dtype))


_KEY = _array((2,), "uint32")


def _timestep(spec: EnvSpec, rows: tuple[int, ...]) -> TimeStep:
    def observed(leaf: ArraySpec) -> jax.ShapeDtypeStruct:
        return _array((*rows, *leaf.shape), leaf.dtype)

    return TimeStep(
        step_type=_array(rows, "uint8"),
        reward=_array(rows, "float32"),
        discount=_array(rows, "float32"),
        observation=spec.unflatten([observed(leaf) for _, leaf in spec.leaves()]),
    )


def _with_rows(tree: Tree, num_rows: int) -> Tree:
    return jax.tree.map(lambda leaf: _array((num_rows, *leaf.shape[1:]), leaf.dtype), tree)


def _on_one_device(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments: function(*arguments, mean=lambda tree: tree)


def _shapes(field: str, function: Callable[..., Any], *arguments: Any) -> Any:
    with naming_own_code(f"agent.{field}"):
        return jax.eval_shape(function, *arguments)


def _expect(is_right: bool, field: str, expected: str, got: Any) -> None:
    if not is_right:
        raise ConfigError(f"agent.{field}: expected {expected}, got {_shown(got)}")


def _is_a(kind: type, field: str, value: Any) -> None:
    _expect(isinstance(value, kind), field, kind.__name__, value)


def _pair(field: str, result: Any, *kinds: type) -> Any:
    kinds = (*kinds, object, object)[:2]
    names = ", ".join("..." if kind is object else kind.__name__ for kind in kinds)
    is_pair = isinstance(result, tuple) and len(result) == 2
    _expect(is_pair and all(map(isinstance, result, kinds)), field, f"({names})", result)
    return result


def _has_rows(field: str, tree: Tree, num_rows: int) -> None:
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        name, expected = f"{field}{jax.tree_util.keystr(path)}", f"a batch [{num_rows}, ...]"
        _expect(leaf.shape[:1] == (num_rows,), name, expected, leaf)


def _is_like(field: str, expected: Tree, got: Tree) -> None:
    """Raises ConfigError unless both trees have the same structure, shapes and dtypes."""
    wanted, given = (
        {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(t)}
        for t in (expected, got)
    )
    for path in {**wanted, **given}:
        one = _shown(wanted.get(path, ()))
        _expect(one == _shown(given.get(path, ())), f"{field}{path}", one, given.get(path, ()))
    # Of the same leaves: a list instead of a tuple, say.
    structures: list[Any] = [jax.tree.structure(tree) for tree in (expected, got)]
    _expect(structures[0] == structures[1], field, f"the containers of {_shown(expected)}", got)


def _shown(value: Any) -> str:
    """A tree in a message: `float32[2, 3]` for an array."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{value.dtype}{list(value.shape)}"
    leaves = jax.tree.leaves(value)
    if not leaves:
        return repr(value)[:80]
    if leaves[0] is value:
        return f"a {type(value).__name__}"
    text = f"{type(value).__name__}({', '.join(map(_shown, leaves))})"
    return text if len(text) <= 120 else f"{text[:120]}..."
