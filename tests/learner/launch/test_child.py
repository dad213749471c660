"""One child process: its exit code, its log, and that nothing of it remains."""

import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from learner.launch.child import Child, Command
from seedrl.exit_codes import ExitCode
from tests.patience import SECONDS

CODES = pytest.mark.parametrize(
    ("code", "expected"),
    [("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 9)", 137), ("", 0)],
)


def python(code: str, log: Path | None = None, **environment: str) -> Command:
    return Command(
        name="child",
        arguments=(sys.executable, "-I", "-S", "-c", code),
        environment=environment,
        log=log,
        ending=signal.SIGKILL,
    )


def run(command: Command) -> tuple[Child, int]:
    exits: queue.SimpleQueue[tuple[Child, int]] = queue.SimpleQueue()
    child = Child(command, lambda child, code: exits.put((child, code)))
    ended, code = exits.get(timeout=SECONDS)
    assert ended is child
    return child, code


@CODES
def test_the_exit_code_is_that_of_a_shell(code: str, expected: int) -> None:
    assert run(python(code))[1] == expected


def test_output_is_appended_to_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    for number in "12":
        code = f"import sys; print({number}, flush=True); print('e', file=sys.stderr)"
        child, _ = run(python(code, log))
    assert log.read_text() == "1\ne\n2\ne\n"
    assert child.last_line() == "e"


def test_the_last_line_is_the_last_that_says_something(tmp_path: Path) -> None:
    child, _ = run(
        python("print('x' * 5000); print('no such environment'); print()", tmp_path / "l")
    )
    assert child.last_line() == "no such environment"
    assert run(python("", tmp_path / "empty"))[0].last_line() == ""
    (tmp_path / "l").unlink()
    assert child.last_line() == ""


def test_the_environment_is_the_given_one(tmp_path: Path) -> None:
    code = "import os; print(os.environ['ONLY'], 'HOME' in os.environ)"
    child, _ = run(python(code, tmp_path / "log", ONLY="this"))
    assert child.last_line() == "this False"


def test_a_child_that_does_not_end_is_killed_with_its_group(tmp_path: Path) -> None:
    alive = tmp_path / "alive"
    os.mkfifo(alive)
    # Parent and child hold the pipe open; the reader sees its end when both are dead.
    code = f"import os, signal; f = open({str(alive)!r}, 'w'); os.fork(); signal.pause()"
    child = Child(python(code), lambda child, code: None)
    with alive.open() as reader:
        child.end(0)
        assert reader.read() == ""


def test_what_a_child_leaves_behind_is_killed_when_it_ends(tmp_path: Path) -> None:
    alive = tmp_path / "alive"
    os.mkfifo(alive)
    code = f"import os, signal; f = open({str(alive)!r}, 'w'); os.fork() or signal.pause()"
    child = Child(python(code), lambda child, code: None)
    with alive.open() as reader:
        assert reader.read() == ""
    child.end(0)


@pytest.mark.skipif(sys.platform != "linux", reason="other kernels do not tie processes")
def test_no_child_outlives_a_killed_parent(tmp_path: Path) -> None:
    alive = tmp_path / "alive"
    os.mkfifo(alive)
    child = (
        f"import signal; f = open({str(alive)!r}, 'w'); f.write('up'); f.flush(); signal.pause()"
    )
    parent = (
        "import signal, sys\n"
        "from learner.launch.child import Child, Command\n"
        f"arguments = (sys.executable, '-I', '-S', '-c', {child!r})\n"
        "Child(Command('child', arguments, {}, None, signal.SIGKILL), lambda *_: None)\n"
        "signal.pause()\n"
    )
    with (
        subprocess.Popen([sys.executable, "-c", parent], env=_with_path()) as process,
        alive.open() as reader,
    ):
        assert reader.read(2) == "up"
        process.kill()
        assert reader.read() == ""


def _with_path() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def test_a_watch_that_fails_says_that_its_child_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(self: Child) -> int:
        raise MemoryError

    monkeypatch.setattr(Child, "_awaited", fail)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    child, code = run(python(""))
    assert code == ExitCode.INTERNAL
    child._process.wait()
