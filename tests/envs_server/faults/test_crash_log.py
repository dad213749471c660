"""What a process leaves to the next one when it dies in an environment."""

import signal
from pathlib import Path

import pytest

from envs_server.faults.crash_log import CrashLog, quarantine_after, said_farewell

_CRASHED = str(128 + signal.SIGSEGV)
_KILLED = str(128 + signal.SIGKILL)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "env_server_0.crash"


def test_the_next_process_finds_what_this_one_was_at_and_knew(path: Path) -> None:
    before = CrashLog(path)
    assert (before.at_work, before.remembered) == ((), "")
    before.note(3, True)
    before.note(5, True)
    before.note(3, False)
    before.remember("all of it, and more")
    before.remember("all of it")
    after = CrashLog(path)
    assert (after.at_work, after.remembered) == ((5,), "all of it")
    last = CrashLog(path)
    assert (last.at_work, last.remembered) == ((), ""), "it is told once"


def test_what_has_no_place_in_the_file_is_left_out(path: Path) -> None:
    before = CrashLog(path)
    before.note(2**20, True)
    before.remember("kept")
    before.remember("x" * 2**20)
    after = CrashLog(path)
    assert (after.at_work, after.remembered) == ((), "")


def test_a_file_that_was_cut_is_begun_again(path: Path) -> None:
    path.write_bytes(b"\1" * 100)
    assert CrashLog(path).at_work == ()
    assert path.stat().st_size == 2**16


def _dies_in(path: Path, position: int, own: str = "", ended: str = _CRASHED) -> list[int]:
    """A process that ends in an environment, and then which ones the process before it lets go."""
    log = CrashLog(path)
    quarantine = quarantine_after(8, log, own, ended)
    log.note(position, True)
    return quarantine.live


def test_an_environment_that_ends_the_process_twice_is_left_out(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert len(_dies_in(path, 3)) == 8
    assert len(_dies_in(path, 3)) == 8
    last = quarantine_after(8, CrashLog(path), "", _CRASHED)
    assert last.live == [0, 1, 2, 4, 5, 6, 7]
    text = "environment 3 has ended the process before, by SIGSEGV"
    quarantined = f"environment 3 is quarantined after failure 2 within an hour: {text}"
    again = [f"{text} (failure 1 within an hour)", f"{quarantined}; 7 of 8 environments go on"]
    assert caplog.messages == again
    assert last.reason == quarantined


@pytest.mark.parametrize(
    "ended, how",
    [
        ("0", "with exit code 0"),
        ("154", "by SIGVTALRM, for it kept the interpreter's lock (serving.step_deadline_seconds)"),
        ("255", "by signal 127"),
    ],
)
def test_the_line_says_how_the_process_ended(
    path: Path, caplog: pytest.LogCaptureFixture, ended: str, how: str
) -> None:
    _dies_in(path, 1)
    quarantine_after(8, CrashLog(path), "", ended)
    text = f"environment 1 has ended the process before, {how} (failure 1 within an hour)"
    assert caplog.messages == [text]


def test_who_is_killed_from_outside_has_no_culprit_and_keeps_what_was_known(path: Path) -> None:
    for _ in range(4):
        assert len(_dies_in(path, 3, ended=_KILLED)) == 8
    _dies_in(path, 3)
    assert 3 not in _dies_in(path, 4), "the second death of its own"
    assert 3 not in _dies_in(path, 4, ended=_KILLED)


@pytest.mark.parametrize("ended", ["", "4"], ids=["a first start", "after it gave up"])
def test_a_start_that_replaces_no_dead_process_begins_anew(path: Path, ended: str) -> None:
    _dies_in(path, 3)
    _dies_in(path, 3)
    assert quarantine_after(8, CrashLog(path), "", ended).num_out == 0
    assert quarantine_after(8, CrashLog(path), "", _CRASHED).num_out == 0, "nothing is left of it"


def test_a_process_that_began_again_by_itself_blames_nobody(path: Path) -> None:
    log = CrashLog(path)
    own = quarantine_after(8, log, "", _CRASHED).remember()
    log.note(3, True)
    for _ in range(3):
        assert len(_dies_in(path, 3, own=own)) == 8


def test_of_several_that_were_at_work_none_is_blamed(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        log = CrashLog(path)
        assert len(quarantine_after(8, log, "", _CRASHED).live) == 8
        log.note(1, True)
        log.note(6, True)
    text = "the process before ended by SIGSEGV, in one of the environments 1, 6"
    assert caplog.messages == [text] * 2


def test_the_process_after_a_death_knows_that_environments_have_worked(path: Path) -> None:
    quarantine_after(1, CrashLog(path), "", "").worked()
    assert not quarantine_after(1, CrashLog(path), "", _KILLED).is_defect(0)


def test_a_farewell_is_of_the_last_process_alone(tmp_path: Path) -> None:
    path = tmp_path / "log"
    assert not said_farewell(path)
    log = CrashLog(path)
    assert not said_farewell(path)
    log.remember("x" * 2**16)  # too long, and so nothing
    log.say_farewell()
    assert said_farewell(path)
    assert CrashLog(path).remembered == "" and not said_farewell(path)
