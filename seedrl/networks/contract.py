"""A network of Q-values that keeps the contract of `Network`, or says in one line where not."""

import functools
from collections.abc import Callable
from typing import Any

from seedrl.contracts.calls import call
from seedrl.contracts.results import checked_init, checked_initial_carry
from seedrl.contracts.shapes import require_array, require_same, shown
from seedrl.errors import ConfigError
from seedrl.networks.network import Network, NetworkInput
from seedrl.specs import EnvSpec
from seedrl.types import Array, Tree

_ORDER = "unroll returns (Q-values, carry)"


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
        functools.partial(_unroll, config, built.unroll, num_actions),
    )


def _what(config: Any, field: str) -> str:
    return f"agent.network.{field} ({type(config).__name__})"


def _unroll(
    config: Any,
    function: Callable[..., Any],
    num_actions: int,
    params: Tree,
    carry: Tree,
    inputs: NetworkInput,
) -> tuple[Array, Tree]:
    what = _what(config, "unroll")
    result = call(what, function, params, carry, inputs, own=config)
    if not isinstance(result, tuple | list) or len(result) != 2:
        raise ConfigError(f"{what}: expected two results, got {_shown(result)}; {_ORDER}")
    q_values, next_carry = result
    shape = (*inputs.reward.shape, num_actions)
    advice = f"that is [T, B, A] of {num_actions} actions, and {_ORDER}"
    require_array(f"{what}: Q-values", q_values, shape, ["float32"], advice)
    advice = f"it must be as initial_carry gives it, and {_ORDER}"
    require_same(f"{what}: carry", carry, next_carry, advice)
    return q_values, next_carry


def _shown(result: Any) -> str:
    return f"{len(result)}" if isinstance(result, tuple | list) else shown(result)
