"""Findings as lines."""

import numpy as np

from envs_server.conformance.findings import Findings, raised, show
from envs_server.conformance.rules import Rule

BAD = Rule("bad", "fix it")
ODD = Rule("odd", "look at it", is_error=False)


def test_each_breach_is_one_line_with_how_often_it_came() -> None:
    findings = Findings()
    findings.add(ODD, "step 1: odd")
    findings.add(BAD, "step 1: bad", subject="a")
    findings.add(BAD, "step 1: worse", subject="b")
    findings.add(BAD, "step 2: bad", subject="a")
    assert [finding.line() for finding in findings.errors] == [
        "error  bad: step 1: bad (2 times); fix it",
        "error  bad: step 1: worse; fix it",
    ]
    assert [finding.line() for finding in findings.notes] == ["note   odd: step 1: odd; look at it"]


def test_only_broken_rules_are_had() -> None:
    findings = Findings()
    findings.add(BAD, "bad")
    assert findings.has(BAD) and not findings.has(ODD)


def test_an_exception_is_told_with_its_place() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError as error:
        line = raised(error)
    place = line.removeprefix("raised ValueError: two lines (test_findings.py:").removesuffix(")")
    assert place.isdigit()


def test_values_are_shown_in_a_few_words() -> None:
    assert show(np.zeros((2, 3), np.uint8)) == "ndarray uint8[2, 3]"
    assert show((1, 2)) == "a tuple of 2"
    assert show({"a": "b" * 100}) == "dict {'a': '" + "b" * 53
    assert show(None) == "NoneType None"
