"""Breaches of rules, collected so that each is said once."""

import os
import traceback
from typing import NamedTuple

from envs_server.conformance.rules import Rule
from envs_server.errors import one_line


class Finding(NamedTuple):
    """A rule that was broken.

    Attributes:
      rule: which.
      text: where it was broken first, what was expected and what came.
      times: how often.
    """

    rule: Rule
    text: str
    times: int

    def line(self) -> str:
        """Everything on one line, e.g. `error  flags: step 3: expected ...; return ...`."""
        severity = "error" if self.rule.is_error else "note"
        times = f" ({self.times} times)" if self.times > 1 else ""
        return f"{severity:<6} {self.rule.name}: {self.text}{times}; {self.rule.remedy}"


class Findings:
    """Owns what was found so far; used by one thread."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], Finding] = {}

    def add(self, rule: Rule, text: str, *, subject: str = "") -> None:
        """Notes a breach. Of those of one rule by one `subject` the first is kept."""
        key = rule.name, subject
        before = self._found.get(key)
        self._found[key] = (
            before._replace(times=before.times + 1) if before else Finding(rule, text, 1)
        )

    def has(self, rule: Rule) -> bool:
        """Whether `rule` was broken."""
        return any(finding.rule == rule for finding in self._found.values())

    @property
    def errors(self) -> list[Finding]:
        """What fails the check, in order of discovery."""
        return [finding for finding in self._found.values() if finding.rule.is_error]

    @property
    def notes(self) -> list[Finding]:
        """What may be intended, in order of discovery."""
        return [finding for finding in self._found.values() if not finding.rule.is_error]


def raised(error: BaseException) -> str:
    """`raised TYPE: TEXT (FILE:LINE)`: where the exception comes from, on one line."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""
    return f"raised {one_line(error)}{place}"


def show(value: object) -> str:
    """A value's type, and what else distinguishes it, in a few words."""
    dtype, shape = getattr(value, "dtype", None), getattr(value, "shape", None)
    if dtype is not None and shape is not None:
        return f"{type(value).__name__} {dtype}{list(shape)}"
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    return f"{type(value).__name__} {' '.join(repr(value).split())[:60]}"
