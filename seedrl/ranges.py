"""Ranges of the numbers in a configuration."""

import math
from collections.abc import Callable
from typing import Any

from seedrl.errors import ConfigError


def check_ranges(
    path: str,
    value: Any,
    *,
    positive: str = "",
    at_least_0: str = "",
    at_least_1: str = "",
    fractions: str = "",
    below_1: str = "",
) -> None:
    """Raises ConfigError for the first field that is out of its range.

    Args:
      path: where `value` is, for the message, with a dot at its end.
      value: a dataclass.
      positive: names of fields, with spaces between them, that must be more than 0.
      at_least_0, at_least_1: likewise; infinity is allowed.
      fractions: from 0 to 1.
      below_1: from 0 to less than 1.
    """
    limits: tuple[tuple[str, str, Callable[[float], bool]], ...] = (
        (positive, "a finite number above 0", lambda number: 0 < number < math.inf),
        (at_least_0, "at least 0", lambda number: number >= 0),
        (at_least_1, "at least 1", lambda number: number >= 1),
        (fractions, "0 to 1", lambda number: 0 <= number <= 1),
        (below_1, "at least 0 and less than 1", lambda number: 0 <= number < 1),
    )
    for names, expected, is_allowed in limits:
        for name in names.split():
            # Not a number fails every comparison.
            if not is_allowed(number := getattr(value, name)):
                raise ConfigError(f"{path}{name}: expected {expected}, got {number}")
