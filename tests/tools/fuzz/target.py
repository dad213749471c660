"""What is fuzzed: a reader of bytes of others, and what must hold of it."""

from collections.abc import Callable
from typing import NamedTuple

# Of a text that is shown to somebody: more is no line.
LONGEST_TEXT = 2000


class Target(NamedTuple):
    """A reader.

    Attributes:
      name: in commands and records.
      check: reads bytes, and says whether they were accepted. Refusing them takes one of the
        errors that the reader documents; whatever else it raises is a defect, as is an
        AssertionError: then what was read does not give the same bytes, or the same value, again.
      seeds: inputs to begin with; of each kind at least one, and one at least is accepted.
    """

    name: str
    check: Callable[[bytes], bool]
    seeds: tuple[bytes, ...]


def assert_one_line(text: object) -> None:
    """What is said of somebody else's bytes is one line, not without end."""
    shown = str(text)
    assert shown, "nothing is said"
    assert "\n" not in shown and "\r" not in shown, f"more than one line: {shown!r:.300}"
    assert len(shown) <= LONGEST_TEXT, f"{len(shown)} characters: {shown!r:.300}"
