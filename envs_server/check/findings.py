"""Findings of both checkers: broken rules, each reported once, with advice."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Finding:
    """A rule that was broken.

    Attributes:
      rule: its name.
      text: what was expected and what came, where it was broken first.
      advice: how to fix it, or where to read on.
      is_error: True if the check fails; other findings are notes, which may be intended.
      times: how often it was broken.
    """

    rule: str
    text: str
    advice: str
    is_error: bool
    times: int = 1

    def line(self) -> str:
        """Everything on one line, e.g. `error  flags: step 3: expected ...; return ...`."""
        severity = "error" if self.is_error else "note"
        times = f" ({self.times} times)" if self.times > 1 else ""
        return f"{severity:<6} {self.rule}: {self.text}{times}; {self.advice}"

    def as_json(self) -> dict[str, Any]:
        """The same for programs."""
        return {"rule": self.rule, "text": self.text, "times": self.times, "remedy": self.advice}


@dataclass
class Findings:
    """Everything found so far, in order of discovery; used by one thread.

    Attributes:
      advice: of each rule that can be broken.
      notes_only: names of the rules whose breach is a note.
    """

    advice: Mapping[str, str]
    notes_only: frozenset[str] = frozenset()
    found: dict[tuple[str, str], Finding] = field(default_factory=dict)

    def add(self, rule: str, text: str, *, subject: str = "") -> None:
        """Notes a breach; of several by one `subject` the first one's text is kept."""
        if before := self.found.get((rule, subject)):
            before.times += 1
            return
        is_error = rule not in self.notes_only
        self.found[rule, subject] = Finding(rule, text, self.advice[rule], is_error)

    def has(self, rule: str) -> bool:
        """True if `rule` was broken."""
        return any(finding.rule == rule for finding in self.found.values())

    @property
    def errors(self) -> list[Finding]:
        """The findings that fail the check."""
        return [finding for finding in self.found.values() if finding.is_error]

    @property
    def notes(self) -> list[Finding]:
        """The findings that may be intended."""
        return [finding for finding in self.found.values() if not finding.is_error]

    def lines(self) -> list[str]:
        """A line for each finding, errors first."""
        return [finding.line() for finding in (*self.errors, *self.notes)]

    def verdict(self) -> str:
        """`passes` or `breaks N rules`."""
        count = len(self.errors)
        return f"breaks {'a rule' if count == 1 else f'{count} rules'}" if count else "passes"

    def as_json(self) -> dict[str, Any]:
        """Verdict, errors and notes for programs."""
        return {
            "passes": not self.errors,
            "errors": [finding.as_json() for finding in self.errors],
            "notes": [finding.as_json() for finding in self.notes],
        }
