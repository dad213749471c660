"""Parameters of a test of which `make test` tries some, and `make proofs` all others."""

from collections.abc import Iterable
from typing import Any

import pytest


def all_but(kept: Iterable[Any], values: Iterable[Any]) -> list[Any]:
    """`values` as parameters: those that are not in `kept` are gates."""
    chosen = list(kept)
    assert chosen and all(value in list(values) for value in chosen)
    return [
        value if value in chosen else pytest.param(value, marks=pytest.mark.gate)
        for value in values
    ]
