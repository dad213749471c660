"""A process that is asked to stop, or whose environment hangs, ends."""

import contextlib
import faulthandler
import io
import subprocess

import pytest

from envs_server import stop
from tests import started

_PROGRAM = """
import os, signal, time
from envs_server import stop
stop._CLOSING_SECONDS = 0.2
asked = stop.Stop()
asked.install()
asked.on_request({cancel})
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(60)
"""


@pytest.mark.parametrize(("cancel", "code"), [("lambda: None", 0), ("lambda: 1 / 0", 70)])
def test_a_process_that_is_asked_to_stop_ends_although_an_environment_hangs(
    cancel: str, code: int
) -> None:
    ended = started.python("-c", _PROGRAM.format(cancel=cancel))
    assert ended.returncode == code
    assert ("ZeroDivisionError" in ended.stderr) == bool(code)


_HANGS = """
import ctypes, time
from envs_server.stop import HangLimit
hang = HangLimit()
for _ in range(20):
    with hang.limit({earlier}):
        pass
with hang.limit({limit}):
    {work}
print("done")
"""


def _run(
    work: str, limit: float = 0.3, earlier: float = 30.0
) -> "subprocess.CompletedProcess[str]":
    return started.python("-c", _HANGS.format(work=work, limit=limit, earlier=earlier))


# Native code that keeps the interpreter's lock lets no thread of Python's run.
@pytest.mark.parametrize("work", ["time.sleep(1e6)", "ctypes.PyDLL(None).sleep(10**6)"])
def test_a_hang_ends_the_process_with_all_stacks(work: str) -> None:
    ended = _run(work)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "most recent call first" in ended.stderr and "<string>" in ended.stderr


# Not the limit of what was done before it, either.
@pytest.mark.parametrize("work", ["time.sleep(1.2)", "ctypes.PyDLL(None).usleep(1_800_000)"])
def test_work_that_has_no_limit_ends_nothing(work: str) -> None:
    assert _run(work, 0.0, earlier=0.3).stdout == "done\n"


def test_an_environment_may_replace_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stop, "_start", lambda *_: None)
    try:
        with contextlib.redirect_stderr(io.StringIO()), stop.HangLimit().limit(1e12):
            pass
    finally:
        faulthandler.cancel_dump_traceback_later()
