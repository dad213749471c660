"""A network that keeps the contract of `Network`, or says in one line where it does not."""

import functools
from collections.abc import Callable
from typing import Any

from seedrl.contracts.calls import call
from seedrl.contracts.results import checked_init, checked_initial_carry
from seedrl.contracts.shapes import require_array, require_same, shown
from seedrl.errors import ConfigError
from seedrl.networks.network import GaussianAndValue, Network, NetworkInput, PolicyAndValue
from seedrl.specs import EnvSpec
from seedrl.types import Tree

# What `unroll` gives of rows of a shape `[T, B]`: looks at it, raises ConfigError.
_Check = Callable[[str, Any, tuple[int, ...]], None]


def build_q_network(config: Any, spec: EnvSpec, num_actions: int) -> Network:
    """The network that `config` builds, whose `unroll` gives Q-values `[T, B, A] float32`.

    Shapes are looked at whenever its functions are called or traced, which costs a compiled program
    nothing.

    Args:
      config: what a configuration holds in `agent.network`.
      spec: of the environment.
      num_actions: A.

    Raises ConfigError, as its functions do, for what a user's own network gets wrong.
    """
    return _build(config, spec, "Q-values", functools.partial(_check_q_values, num_actions))


def build_actor_critic(config: Any, spec: EnvSpec, num_actions: int) -> Network:
    """The network that `config` builds, whose `unroll` gives a `PolicyAndValue`.

    For the rest see `build_q_network`.
    """
    check = functools.partial(_check_policy_and_value, num_actions)
    return _build(config, spec, "PolicyAndValue", check)


def build_gaussian_critic(config: Any, spec: EnvSpec, num_numbers: int) -> Network:
    """The network that `config` builds, whose `unroll` gives a `GaussianAndValue`.

    `num_numbers` is D; for the rest see `build_q_network`.
    """
    check = functools.partial(_check_gaussian_and_value, num_numbers)
    return _build(config, spec, "GaussianAndValue", check)


def _build(config: Any, spec: EnvSpec, output: str, check: _Check) -> Network:
    if isinstance(config, type) or not callable(getattr(config, "build", None)):
        raise ConfigError(
            f"agent.network: expected a config with build(spec), got {config!r:.80}; it is an "
            "instance of a frozen dataclass"
        )
    what = _what(config, "build")
    built = call(what, config.build, spec, own=config)
    if not isinstance(built, Network):
        raise ConfigError(
            f"{what}: expected a seedrl.networks.network.Network, got a {type(built).__name__}; "
            "return Network(init, initial_carry, unroll)"
        )
    return Network(
        functools.partial(checked_init, _what(config, "init"), config, built.init),
        functools.partial(
            checked_initial_carry, _what(config, "initial_carry"), config, built.initial_carry
        ),
        functools.partial(_unroll, config, built.unroll, output, check),
    )


def _what(config: Any, field: str) -> str:
    return f"agent.network.{field} ({type(config).__name__})"


def _unroll(
    config: Any,
    function: Callable[..., Any],
    output: str,
    check: _Check,
    params: Tree,
    carry: Tree,
    inputs: NetworkInput,
) -> tuple[Tree, Tree]:
    what = _what(config, "unroll")
    order = f"unroll returns ({output}, carry)"
    result = call(what, function, params, carry, inputs, own=config)
    if not isinstance(result, tuple | list) or len(result) != 2:
        raise ConfigError(f"{what}: expected two results, got {_shown(result)}; {order}")
    given, next_carry = result
    check(what, given, inputs.reward.shape)
    advice = f"it must be as initial_carry gives it, and {order}"
    require_same(f"{what}: carry", carry, next_carry, advice)
    return given, next_carry


def _check_q_values(num_actions: int, what: str, q_values: Any, rows: tuple[int, ...]) -> None:
    shape = (*rows, num_actions)
    advice = f"that is [T, B, A] of {num_actions} actions, and unroll returns (Q-values, carry)"
    require_array(f"{what}: Q-values", q_values, shape, ["float32"], advice)


def _check_policy_and_value(
    num_actions: int, what: str, output: Any, rows: tuple[int, ...]
) -> None:
    if not isinstance(output, PolicyAndValue):
        raise ConfigError(
            f"{what}: expected a seedrl.networks.network.PolicyAndValue(logits, value), got "
            f"{shown(output)}; unroll returns (PolicyAndValue, carry)"
        )
    advice = f"that is [T, B, A] of {num_actions} actions"
    require_array(f"{what}: logits", output.logits, (*rows, num_actions), ["float32"], advice)
    require_array(f"{what}: value", output.value, rows, ["float32"], "that is [T, B]")


def _check_gaussian_and_value(
    num_numbers: int, what: str, output: Any, rows: tuple[int, ...]
) -> None:
    if not isinstance(output, GaussianAndValue):
        raise ConfigError(
            f"{what}: expected a seedrl.networks.network.GaussianAndValue(mean, log_std, value), "
            f"got {shown(output)}; unroll returns (GaussianAndValue, carry)"
        )
    advice = f"that is [T, B, D] of actions of {num_numbers} numbers"
    for name in ("mean", "log_std"):
        shape = (*rows, num_numbers)
        require_array(f"{what}: {name}", getattr(output, name), shape, ["float32"], advice)
    require_array(f"{what}: value", output.value, rows, ["float32"], "that is [T, B]")


def _shown(result: Any) -> str:
    return f"{len(result)}" if isinstance(result, tuple | list) else shown(result)
