"""The log of sent steps: what it counts outlives the process, and is reported until it is heard."""

import errno
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from envs_server.sent_log import SentLog, has_finished

_ROOT = Path(__file__).parents[2]


def _told(log: SentLog) -> list[tuple[int, ...]]:
    return [(s.lease, s.group, s.num_envs, s.steps, s.answered) for s in log.report()]


def test_it_counts_by_group_until_the_next_lease_is_open() -> None:
    log = SentLog()
    assert _told(log) == []
    log.open(77, [3, 2])
    for group in (0, 0, 1):
        log.sent(group)
    log.answered(0)
    expected = [(77, 0, 3, 2, 1), (77, 1, 2, 1, 0)]
    assert _told(log) == _told(log) == expected
    log.open(78, [4])
    assert _told(log) == [(78, 0, 4, 0, 0)]


def test_counts_outlive_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "sent"
    script = (
        "import sys, time; from pathlib import Path; from envs_server.sent_log import SentLog\n"
        "log = SentLog(Path(sys.argv[1])); log.open(2**62, [5])\n"
        "for _ in range(1000): log.sent(0)\n"
        "log.answered(0); print('ready', flush=True); time.sleep(600)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, path],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
    )
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    with pytest.raises(ValueError):
        SentLog(path)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert _told(SentLog(path)) == [(2**62, 0, 5, 1000, 1)]


def test_another_file_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    short, long = tmp_path / "short", tmp_path / "long"
    short.write_bytes(b"precious")
    SentLog(long)
    content = b"x" * long.stat().st_size
    del long
    (tmp_path / "other").write_bytes(content)
    for path in (short, tmp_path / "other"):
        before = path.read_bytes()
        with pytest.raises(ValueError):
            SentLog(path)
        assert path.read_bytes() == before


def test_a_log_has_its_place_on_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "sent"
    SentLog(path)
    assert path.stat().st_blocks * 512 >= path.stat().st_size > 0


def test_a_disk_without_room_leaves_nothing_that_a_later_start_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int, start: int, length: int) -> None:
        os.ftruncate(descriptor, length // 2)  # some of it was there
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", fail)
        with pytest.raises(OSError):
            SentLog(tmp_path / "sent")
    assert SentLog(tmp_path / "sent").report() == []


def test_notes_are_for_the_next_process_and_for_the_supervisor(tmp_path: Path) -> None:
    path = tmp_path / "log"
    assert not has_finished(path)
    log = SentLog(path)
    assert not log.has_served
    log.note_served()
    log.note_finished()
    log.open(7, [2])
    assert has_finished(path)
    # As the next process finds it.
    after = SentLog(shutil.copy(path, tmp_path / "after"))
    assert after.has_served and not has_finished(tmp_path / "after")
    assert [sent.lease for sent in after.report()] == [7]
