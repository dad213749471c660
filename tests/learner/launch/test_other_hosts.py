"""The other learners of a run on one machine."""

import os
import signal
import sys
import threading
from pathlib import Path

from learner.launch.child import Command
from learner.launch.other_hosts import OtherHosts
from tests.patience import SECONDS


def command(name: str, log: Path, code: int) -> Command:
    text = f"print('its last line', flush=True); raise SystemExit({code})"
    arguments = (sys.executable, "-c", text)
    return Command(name, arguments, dict(os.environ), log, signal.SIGKILL)


def test_one_that_ends_with_an_error_is_named_once_and_gives_its_code(tmp_path: Path) -> None:
    said: list[str] = []
    has_failed = threading.Event()
    commands = [
        command("learner 1", tmp_path / "1.log", 0),
        command("learner 2", tmp_path / "2.log", 80),
    ]
    with OtherHosts(commands, has_failed.set, said.append) as others:
        assert has_failed.wait(SECONDS)
    assert others.code == 80
    assert said == [f"learner 2 ended with 80; its log, {tmp_path / '2.log'}, ends: its last line"]


def test_those_that_end_well_say_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    with OtherHosts([command("learner 1", tmp_path / "log", 0)], said.clear, said.append) as others:
        pass
    assert (others.code, said) == (0, [])
