"""What happens in a run is said once, and never holds anybody up."""

import functools
import json
from pathlib import Path

from learner.report.events import Event, Events
from seedrl import run_files


def test_an_event_is_the_same_line_on_the_terminal_and_in_the_file(tmp_path: Path) -> None:
    shown: list[Event] = []
    events = Events(
        tmp_path, shown.append, clock=iter([5.0, 7.5, 7.5]).__next__, elapsed_seconds=10.0
    )
    events.count_steps = lambda: 123
    events.report("ended", "the run ends: all steps taken", reason="all steps taken")
    assert shown == []  # whoever says it may hold a lock
    events.close()
    line = json.loads((tmp_path / run_files.EVENTS).read_text())
    (event,) = shown
    assert line.pop("time_seconds") == event.time_seconds
    assert line == {
        "elapsed_seconds": 12.5,
        "env_steps": 123,
        "kind": "ended",
        "is_problem": False,
        "text": event.text,
        "fields": {"reason": "all steps taken"},
    }


def test_an_env_server_that_leaves_is_no_problem_while_some_are_released(tmp_path: Path) -> None:
    shown: list[Event] = []
    events = Events(tmp_path, shown.append)
    for is_releasing in (True, False):
        events.is_releasing = functools.partial(bool, is_releasing)
        events.report("server_left", "it leaves", server="vm:7", reason="")
        events.report("save_failed", "no", reason="")
    events.close()
    assert [each.is_problem for each in shown] == [False, True, True, True]
