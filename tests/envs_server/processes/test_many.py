"""Env servers that one process forks: who is started again, and how all of them end."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import grpc
import pytest

from envs_server.__main__ import main
from seedrl.wire.framing import ActionsPayload
from tests import started
from tests.patience import SECONDS, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only there it is offered")

_PROGRAM = "tests.envs_server.processes.acting_for_many"


class _Ended(NamedTuple):
    code: int
    stdout: str
    stderr: str


def _run(
    tmp_path: Path,
    *body: str,
    settings: str = "many._FIRST_PAUSE_SECONDS = 0.01",
    stdout: IO[bytes] | int = subprocess.PIPE,
) -> _Ended:
    process = started.start(
        [_PROGRAM, str(tmp_path), settings, "\n".join(body)],
        cwd=Path.cwd(),
        variables=started.variables(),
        stdout=stdout,
        stderr=subprocess.PIPE,
    )
    with process:
        stdout, stderr = process.communicate(timeout=SECONDS)
    return _Ended(process.returncode, stdout, stderr)


def _starts(tmp_path: Path) -> list[str]:
    """Of each number, what its processes have heard of the one before."""
    return [(tmp_path / str(number)).read_text().strip() for number in range(3)]


def test_who_dies_is_started_again_and_hears_how_the_one_before_ended(tmp_path: Path) -> None:
    ended = _run(
        tmp_path,
        "if number == 1 and start == 1: os.kill(os.getpid(), 11)",
        "if number == 1 and start == 2: os._exit(70)",
        "wait_for(1, 3)",
        "return over()",
    )
    assert (ended.code, _starts(tmp_path)) == (0, ["-", "- 139 70", "-"])
    first, *lines = ended.stderr.splitlines()
    assert first == "python -m envs_server: 3 env servers of 1 environment each"
    assert [line.split(" ended with ")[1] for line in lines] == [
        "139 and is started again in 0.01 s",
        "70 and is started again in 0.02 s",
    ]


def test_an_environment_that_ends_its_process_with_0_has_heard_nothing(tmp_path: Path) -> None:
    ends = "if number == 1 and start == 1: os._exit(0)"
    ended = _run(tmp_path, ends, "wait_for(1, 2)", "return over()")
    assert (ended.code, _starts(tmp_path)) == (0, ["-", "- 0", "-"])


def test_who_lived_long_is_started_again_at_once(tmp_path: Path) -> None:
    body = ("if start == 1 and number == 0: os._exit(4)", "wait_for(0, 2)", "return over()")
    ended = _run(tmp_path, *body, settings="many._LONG_LIFE_SECONDS = 0.0")
    assert "ended with 4 and is started again at once" in ended.stderr
    assert _starts(tmp_path)[0] == "- 4"


def test_a_child_that_they_did_not_start_ends_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "end")
    # `cat` is a child of the shell, which then becomes their parent.
    script = 'cat "$0/end" & echo $! > "$0/stranger"; exec "$@"'
    body = (
        "if number == 0: (folder / 'end').write_text('')",
        "stranger = Path('/proc', (folder / 'stranger').read_text().strip())",
        "while stranger.exists(): time.sleep(0.005)",  # until it was reaped
        "return over()",
    )
    program = [sys.executable, "-m", _PROGRAM, str(tmp_path), "", "\n".join(body)]
    command = ["sh", "-c", script, str(tmp_path), *program]
    ended = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=SECONDS)
    assert (ended.returncode, len(ended.stderr.splitlines())) == (0, 1), ended.stderr
    assert _starts(tmp_path) == ["-", "-", "-"]


@pytest.mark.parametrize(
    ("ends", "code"),
    [
        ("print('more than the disk takes'); return 0", 74),
        ("import logging; logging.shutdown = None; return 3", 3),
    ],
)
def test_what_goes_wrong_at_the_end_of_one_ends_no_other(
    tmp_path: Path, ends: str, code: int
) -> None:
    """It must not do what its parent does at its own end, whose stack it has."""
    with open("/dev/full", "w") as full:
        ended = _run(
            tmp_path,
            f"if number == 1 and start == 1: {ends}",
            "wait_for(1, 2)",
            "if not options.sent_log.parent.exists(): return 2",
            "return over()",
            stdout=full,
        )
    assert (ended.code, _starts(tmp_path)) == (0, ["-", f"- {code}", "-"])
    assert len(ended.stderr.splitlines()) == 2 + (code == 74)


@pytest.mark.parametrize("code", [2, 6])
def test_one_that_would_end_so_again_ends_all(tmp_path: Path, code: int) -> None:
    ended = _run(tmp_path, f"if number == 1: return {code}", f"time.sleep({SECONDS})")
    assert ended.code == code
    assert len(ended.stderr.splitlines()) == 1


def test_who_pauses_when_training_is_over_does_not_come_back(tmp_path: Path) -> None:
    ended = _run(
        tmp_path,
        "if number == 1 and start < 20: os._exit(4)",
        "wait_for(1, 8)",
        "return over()",
    )
    assert ended.code == 0
    # The pauses of the eighth and of those after it are seconds: the others have ended before.
    assert 8 <= len(_starts(tmp_path)[1].split()) < 20


@pytest.mark.parametrize("dies", ["os.kill(os.getpid(), 11)", "os._exit(4)"])
def test_who_dies_after_it_has_heard_the_end_does_not_come_back(tmp_path: Path, dies: str) -> None:
    """As in closing its environments: nobody would tell the next one that training is over."""
    ended = _run(
        tmp_path,
        f"if number == 1 and start == 1: over(); {dies}",
        f"if number == 1: time.sleep({SECONDS})",
        "return over()",
        settings="many._LONG_LIFE_SECONDS = 0.0",
    )
    assert (ended.code, _starts(tmp_path)) == (0, ["-", "-", "-"])
    assert len(ended.stderr.splitlines()) == 1


def test_a_farewell_of_an_earlier_run_hides_no_refusal(tmp_path: Path) -> None:
    """One that is refused what it needs may end before it has opened its logs."""
    ended = _run(tmp_path, "if number == 1: over(); return 2", f"time.sleep({SECONDS})")
    assert ended.code == 2


def test_each_has_random_numbers_of_its_own(tmp_path: Path) -> None:
    ended = _run(tmp_path, "say(np.random.random())", "return over()")
    assert len(set(ended.stdout.split())) == 3


def test_the_folder_of_their_logs_is_gone_afterwards(tmp_path: Path) -> None:
    ended = _run(tmp_path, "say(options.sent_log)", "return over()")
    folders = {Path(line).parent for line in ended.stdout.split()}
    assert len(folders) == 1 and not folders.pop().exists()


Spawn = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    """Starts env servers of one parent; ends them after the test, whatever became of it."""
    with contextlib.ExitStack() as stack:

        def start(address: str, number: int) -> "subprocess.Popen[str]":
            words = ("--learner", address, "--num-envs", "2", "--processes", str(number))
            process = started.env_server(*words)
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield start


class _Played:
    """Scripts that serve for ever, and say whom."""

    def __init__(self, learner: Any) -> None:
        self._learner = learner
        self._lock = threading.Lock()
        self.hellos: list[Any] = []
        self.answered: set[int] = set()

    def __call__(self, messages: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        first = next(messages)
        with self._lock:
            self.hellos.append(first.hello)
        assign = self._learner.assign([1], [2])
        assign.assign.lease = first.hello.pid
        script = self._learner.play(assign, 10**9)
        for answer in script(_chain(first, messages), context):
            yield answer
            if isinstance(answer, ActionsPayload):
                time.sleep(0.01)  # else they would step as fast as they can
                self.answered.add(first.hello.pid)

    @property
    def pids(self) -> set[int]:
        """Of those that were served."""
        return {hello.pid for hello in self.hellos}


def _chain(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from rest


def _threads(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.parametrize("learner", ["stream", "link"], indirect=True)
def test_all_serve_one_is_killed_and_returns_and_sigterm_ends_them(
    learner: Any, spawn: Spawn
) -> None:
    played = _Played(learner)
    learner.serve(*[played] * 4)
    process = spawn(learner.address, 3)
    wait_until(lambda: len(played.answered) == 3)
    assert {_parent(pid) for pid in played.pids} == {process.pid}
    assert _threads(process.pid) == 1  # what a fork needs
    assert all(not hello.sent for hello in played.hellos)
    killed = played.hellos[0].pid
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: len(played.answered) == 4)
    assert {sent.lease for sent in played.hellos[-1].sent} == {killed}
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=SECONDS)
    assert process.returncode == 0 and "Traceback" not in stderr
    assert f"env server {killed} ended with 137" in stderr
    assert stderr.count("stopped") == 3
    assert not any(Path(f"/proc/{pid}").exists() for pid in played.pids)


@pytest.mark.parametrize("learner", ["stream"], indirect=True)
def test_one_that_somebody_else_asks_to_end_is_started_again(learner: Any, spawn: Spawn) -> None:
    played = _Played(learner)
    learner.serve(*[played] * 3)
    process = spawn(learner.address, 2)
    wait_until(lambda: len(played.answered) == 2)
    asked = played.hellos[0].pid
    os.kill(asked, signal.SIGTERM)
    wait_until(lambda: len(played.answered) == 3)
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=SECONDS)
    assert process.returncode == 0 and f"env server {asked} ended with 0 and is started" in stderr


@pytest.mark.parametrize("learner", ["stream"], indirect=True)
def test_they_end_when_training_is_over(learner: Any, spawn: Spawn) -> None:
    learner.serve(*[learner.play(learner.assign([1]), 3)] * 3)
    process = spawn(learner.address, 3)
    _, stderr = process.communicate(timeout=SECONDS)
    assert process.returncode == 0 and stderr.count("finished: ") == 3


@pytest.mark.parametrize("learner", ["stream"], indirect=True)
def test_they_do_not_outlive_their_parent(learner: Any, spawn: Spawn) -> None:
    played = _Played(learner)
    learner.serve(*[played] * 2)
    process = spawn(learner.address, 2)
    wait_until(lambda: len(played.answered) == 2)
    process.kill()
    process.communicate(timeout=SECONDS)
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in played.pids))


def test_one_process_has_no_parent_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[Any] = []
    monkeypatch.setattr("envs_server.processes.one.serve", lambda *each: served.append(each) or 0)
    monkeypatch.setattr("envs_server.__main__.leave", lambda code: None)
    main(["--learner", "127.0.0.1:1", "--num-envs", "1"])
    ((options, words),) = served
    assert (options.processes, options.sent_log) == (1, None) and "--processes" not in words
