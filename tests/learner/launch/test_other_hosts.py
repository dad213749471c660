"""The other learners of a run on one machine."""

import os
import signal
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from learner.launch import other_hosts
from learner.launch.child import Command
from learner.launch.other_hosts import OtherHosts
from tests.patience import SECONDS, wait_until


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


LISTENING = """
import signal, sys
def end(number, frame):
    print("it is told to end", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
print("it waits", flush=True)
signal.pause()
"""


def test_one_that_waits_for_the_first_learner_is_told_to_end_with_it(tmp_path: Path) -> None:
    said: list[str] = []
    log = tmp_path / "1.log"
    waiting = command("learner 1", log, 0)._replace(arguments=(sys.executable, "-c", LISTENING))
    with OtherHosts([waiting], said.clear, said.append) as others:
        wait_until(lambda: log.read_text() == "it waits\n", "that it listens")
    assert log.read_text() == "it waits\nit is told to end\n"
    assert (others.code, said) == (0, [])


def test_one_that_does_not_listen_for_signals_yet_ends_without_a_word(tmp_path: Path) -> None:
    said: list[str] = []
    text = "print('it imports', flush=True); import signal; signal.pause()"
    log = tmp_path / "1.log"
    importing = command("learner 1", log, 0)._replace(arguments=(sys.executable, "-c", text))
    with OtherHosts([importing], said.clear, said.append) as others:
        wait_until(lambda: log.read_text() == "it imports\n", "that it is there")
    assert (others.code, said) == (0, [])


def test_those_that_hang_are_waited_for_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    waits: list[float] = []

    class Hanging:
        """Takes all the time that it gets."""

        def __init__(self, *_: object) -> None:
            """Starts nothing."""

        def send(self, number: int) -> None:
            assert number == signal.SIGTERM

        def end(self, seconds: float) -> None:
            waits.append(seconds)
            now[0] += max(0.0, seconds)

    monkeypatch.setattr(other_hosts, "Child", Hanging)
    monkeypatch.setattr(other_hosts, "time", SimpleNamespace(monotonic=lambda: now[0]))
    with OtherHosts([command(f"learner {n}", tmp_path / "log", 0) for n in (1, 2)], list):
        pass
    assert waits == [30.0, 0.0]
