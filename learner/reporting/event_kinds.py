"""What can happen in a run: the closed list of the kinds of events, the source of docs/events.md.

A test compares this list with what the code says, in both directions, fields included.
"""

from typing import Literal, NamedTuple

Kind = Literal[
    "started",
    "ended",
]


class EventKind(NamedTuple):
    """A kind of event.

    Attributes:
      kind: its name.
      meaning: when it is said.
      fields: name -> meaning, of the numbers and names that its text tells in words.
      is_problem: whether a person should look at it.
    """

    kind: Kind
    meaning: str
    fields: dict[str, str]
    is_problem: bool = False


EVENTS: tuple[EventKind, ...] = (
    EventKind(
        "started",
        "the learner serves env servers from now on",
        {"address": "where", "devices": "what it learns on", "workdir": "the run folder"},
    ),
    EventKind("ended", "the run is over", {"reason": "why, in words"}),
)

PROBLEMS = frozenset(event.kind for event in EVENTS if event.is_problem)
