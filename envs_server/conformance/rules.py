"""The form of a rule of the checker of env servers."""

from typing import NamedTuple


class Rule(NamedTuple):
    """A rule by name, and how to fix what breaks it."""

    name: str
    remedy: str
    is_error: bool = True
