"""Findings of both checkers: broken rules, each reported once, with advice."""

import dataclasses
from collections.abc import Collection, Mapping


@dataclasses.dataclass
class Finding:
    """A broken rule: what was expected and what came first, how to fix it, and how often."""

    rule: str
    text: str
    remedy: str
    times: int = 1


class Findings:
    """Everything found so far, in order of discovery; used by one thread."""

    def __init__(self, remedies: Mapping[str, str], notes_only: Collection[str]) -> None:
        """`remedies` has every rule; a breach of one in `notes_only` may be intended."""
        self._remedies, self._notes_only = remedies, notes_only
        # By rule and subject: an environment that breaks a rule at every step is one line.
        self._found: dict[tuple[str, str], Finding] = {}

    def add(self, rule: str, text: str, *, subject: str = "") -> None:
        """Notes a breach; of several by one `subject` the first one's text is kept."""
        if before := self._found.get((rule, subject)):
            before.times += 1
        else:
            # The first one: those that follow may be its consequences.
            self._found[rule, subject] = Finding(rule, text, self._remedies[rule])

    @property
    def errors(self) -> list[Finding]:
        """The findings that fail the check."""
        return [each for each in self._found.values() if each.rule not in self._notes_only]

    @property
    def notes(self) -> list[Finding]:
        """The findings that may be intended."""
        return [each for each in self._found.values() if each.rule in self._notes_only]

    def lines(self, subject: str) -> list[str]:
        """Each on one line, errors first, and whether `subject` passes."""
        lines = []
        for severity, findings in (("error ", self.errors), ("note  ", self.notes)):
            for each in findings:
                times = f" ({each.times:,} times)" if each.times > 1 else ""
                lines.append(f"{severity} {each.rule}: {each.text}{times}; {each.remedy}")
        count = len(self.errors)
        verdict = f"breaks {'a rule' if count == 1 else f'{count} rules'}" if count else "passes"
        return [*lines, f"{subject} {verdict}"]
