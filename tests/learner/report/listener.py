"""A listener that keeps the events that it takes, for tests."""

from typing import Any, NamedTuple


class Taken(NamedTuple):
    """An event."""

    kind: str
    text: str
    is_problem: bool
    fields: dict[str, Any]


class Heard:
    """Keeps events.

    Attributes:
      events: those that were not taken yet.
    """

    def __init__(self) -> None:
        self.events: list[Taken] = []

    def report(self, kind: str, text: str, *, is_problem: bool = False, **fields: Any) -> None:
        """Takes an event."""
        self.events.append(Taken(kind, text, is_problem, fields))

    def take(self) -> list[Taken]:
        """The events since the last call."""
        taken, self.events = self.events, []
        return taken

    def kinds(self) -> list[str]:
        """Their kinds."""
        return [event.kind for event in self.take()]
