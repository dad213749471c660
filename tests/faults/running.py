"""Runs the tests of a row in a process of their own, and collects their figures."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from learner.bench.machine import commit, in_words
from tests.faults.matrix import ROOT, Row
from tests.faults.records import Figure, Outcome, Record


class Finished(NamedTuple):
    """How the tests of a row ended: the outcome of all, and their figures by name."""

    outcome: Outcome
    figures: dict[str, Figure]


def run(row: Row, options: Sequence[str] = ()) -> Record:
    """Runs all tests of a row; what they say goes to the terminal. `options` are pytest's."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        # An expression that is true of all: without it the slow ones (`gate`) are left out.
        command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-m", "gate or not gate"]
        command += ["-o", "junit_family=legacy"]  # the one that takes figures
        command += [f"--junitxml={report}", *options, *row.tests]
        code = subprocess.run(command, cwd=ROOT, stdout=sys.stderr).returncode
        finished = finished_tests(report) if report.exists() else Finished("failed", {})
    outcome: Outcome = "passed" if code == 0 and finished.outcome == "passed" else "failed"
    return Record(
        row=row.name,
        outcome=outcome,
        figures=finished.figures,
        seconds=round(time.monotonic() - start, 1),
        commit=present_commit(),
        date=time.strftime("%Y-%m-%d", time.gmtime()),
        machine=in_words().partition(", commit")[0],
    )


def present_commit() -> str:
    """The checkout's commit in short; that files differ from it is not seen."""
    return (commit() or "unknown").partition("-")[0][:12]


def finished_tests(report: Path) -> Finished:
    """Reads what pytest has written of a row's tests. A test that is skipped has shown nothing.

    Figures are what tests hand in by `record_property`. Of several of one name each gets a number.
    """
    cases = list(ElementTree.parse(report).iter("testcase"))
    bad = [case for case in cases if any(case.find(end) is not None for end in _ENDS)]
    figures: dict[str, Figure] = {}
    for case in cases:
        for item in case.iter("property"):
            name = base = item.get("name", "")
            number = 1
            while name in figures:
                number += 1
                name = f"{base}_{number}"
            figures[name] = _figure(item.get("value", ""))
    return Finished("failed" if bad or not cases else "passed", figures)


_ENDS = ("failure", "error", "skipped")


def _figure(text: str) -> Figure:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
