"""A listener that keeps the events that it takes, for tests."""

from typing import Any, NamedTuple

from learner.report.events import EventSink


class Taken(NamedTuple):
    """An event."""

    kind: str
    text: str
    is_problem: bool
    fields: dict[str, Any]


class Heard(EventSink):
    """Keeps the events that were not taken yet."""

    def __init__(self) -> None:
        self.events: list[Taken] = []

    def report(self, kind: str, text: str, *, is_problem: bool = False, **fields: Any) -> None:
        self.events.append(Taken(kind, text, is_problem, fields))

    def take(self) -> list[Taken]:
        """The events since the last call."""
        taken, self.events = self.events, []
        return taken
