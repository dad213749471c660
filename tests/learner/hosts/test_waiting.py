"""Waits for other hosts of which a user hears."""

import threading

import pytest

from learner.hosts import waiting
from learner.hosts.waiting import reported
from tests.patience import wait_until


def test_what_takes_long_is_reported_while_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "_REPORT_SECONDS", 0.0)
    lines: list[str] = []
    with reported("waits for b:7", lines.append):
        wait_until(lambda: lines, "the line")
    assert lines == ["waits for b:7"]


def test_what_is_over_soon_is_not_reported() -> None:
    lines: list[str] = []
    before = threading.enumerate()
    with pytest.raises(OSError, match="no network"), reported("waits for b:7", lines.append):
        raise OSError("no network")
    wait_until(lambda: set(threading.enumerate()) <= set(before), "that nobody waits for it")
    assert lines == []
