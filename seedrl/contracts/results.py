"""What the functions of agents and of networks give alike, each looked at when it is called."""

from collections.abc import Callable
from typing import Any

from seedrl.contracts.calls import call
from seedrl.contracts.shapes import require_arrays, require_rows, shown
from seedrl.errors import ConfigError
from seedrl.types import Array, Tree


def checked_init(what: str, own: object, function: Callable[[Array], Tree], key: Array) -> Tree:
    """What an `init` gives: arrays alone. ConfigError if not; for `own` see `call`."""
    params = call(what, function, key, own=own)
    require_arrays(what, params)
    return params


def checked_initial_carry(
    what: str, own: object, function: Callable[[int], Tree], batch_size: int
) -> Tree:
    """What an `initial_carry` gives: leaves `[B, ...]`. Otherwise as `checked_init`."""
    carry = call(what, function, batch_size, own=own)
    require_rows(what, carry, batch_size)
    return carry


def require_pair(what: str, result: Any, kinds: tuple[type, type], expected: str) -> None:
    """Raises ConfigError unless `result` is a tuple of two, of these classes.

    Args:
      what, expected: for the message; `expected` is how the pair is written.
    """
    is_pair = isinstance(result, tuple) and len(result) == 2
    if not (is_pair and all(map(isinstance, result, kinds))):
        got = ", ".join(type(part).__name__ for part in result) if is_pair else shown(result)
        raise ConfigError(f"{what}: expected {expected}, got {got}")
