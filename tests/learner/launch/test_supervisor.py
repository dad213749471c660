"""Supervision of real processes: who is started again, and how a run ends."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from learner.launch import restarts
from learner.launch.child import Command
from learner.launch.supervisor import LateReceiver, Supervisor, forward_signals

PAUSE = "signal.pause()"
SAVING = (
    "def end(*_): note('saved'); sys.exit(0)\n"
    "signal.signal(signal.SIGTERM, end); tell(); signal.pause()"
)


class Stage:
    """Command lines of small Python programs that share a folder, and what the supervisor said."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.said: list[str] = []
        self.reasons: list[str] = []
        self.grace_seconds = 600.0
        self.events = folder / "events"
        os.mkfifo(self.events)

    def learner(self, code: str) -> Command:
        command = self._command("learner", code, None)
        return command._replace(grace_seconds=self.grace_seconds)

    def env_server(self, code: str, index: int = 0) -> Command:
        name = f"env server {index}"
        return self._command(name, code, self.folder / f"env_server_{index}.log")

    def supervisor(
        self,
        *env_servers: str,
        learner: str | None = None,
        restarts: int = 10,
        clock: Callable[[], float] = time.monotonic,
    ) -> Supervisor:
        return Supervisor(
            [self.env_server(code, index) for index, code in enumerate(env_servers)],
            learner=None if learner is None else self.learner(learner),
            restarts=restarts,
            give_reason=self.reasons.append,
            clock=clock,
            say=self.said.append,
        )

    def lines(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    def _command(self, name: str, code: str, log: Path | None) -> Command:
        prelude = (
            "import os, signal, sys\n"
            f"os.chdir({str(self.folder)!r})\n"
            "def note(file, text='x'):\n"
            "    with open(file, 'a') as f: f.write(text + '\\n')\n"
            "def tell(): note('events')\n"
            "def listen():\n"
            "    with open('events') as f: f.readline()\n"
        )
        arguments = (sys.executable, "-I", "-S", "-c", prelude + code)
        return Command(name, arguments, {}, log, signal.SIGKILL)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_a_run_ends_with_the_exit_code_of_its_learner(stage: Stage) -> None:
    with stage.supervisor(PAUSE, PAUSE, learner="sys.exit(74)") as supervisor:
        assert supervisor.wait() == 74
    assert stage.said == []


def test_a_learner_that_was_killed_is_named_with_what_to_do(stage: Stage) -> None:
    with stage.supervisor(learner="os.kill(os.getpid(), signal.SIGKILL)") as supervisor:
        assert supervisor.wait() == 137
    assert stage.said == [
        "seedrl: error: the learner was killed by SIGKILL (out of memory?); this resumes from "
        "its newest checkpoint, or begins again if it has saved none: "
        "the same command with --workdir"
    ]


DIES_SAVING = (
    "signal.signal(signal.SIGTERM, lambda *_: os.kill(os.getpid(), signal.SIGKILL))\n"
    "tell(); signal.pause()"
)


def test_so_is_one_that_is_killed_while_it_saves(stage: Stage) -> None:
    with stage.supervisor(learner=DIES_SAVING) as supervisor:
        stage.events.read_text()
        supervisor.signal(signal.SIGINT)
        assert supervisor.wait() == 137
    (line,) = stage.said
    assert line.startswith("seedrl: error: the learner was killed by SIGKILL (out of memory?); thi")


def test_so_is_one_that_is_killed_while_it_saves_because_of_its_env_servers(stage: Stage) -> None:
    refused = "listen(); print('ends: no'); sys.exit(2)"
    with stage.supervisor(refused, learner=DIES_SAVING) as supervisor:
        assert supervisor.wait() == 2
    first, second = stage.said
    assert first == "seedrl: error: env server 0 cannot run: no"
    assert second.startswith("seedrl: error: the learner was killed by SIGKILL")


def test_one_that_our_own_signal_ends_was_not_killed(stage: Stage) -> None:
    refused = "listen(); print('ends: no'); sys.exit(2)"
    with stage.supervisor(refused, learner="tell(); signal.pause()") as supervisor:
        assert supervisor.wait() == 2
    assert stage.said == ["seedrl: error: env server 0 cannot run: no"]


@pytest.mark.parametrize(
    ("learner", "code", "said"),
    [
        # Imports yet, say.
        (PAUSE, 0, ["before it had begun: nothing was learned or saved; this starts it again:"]),
        # Has handlers, and its own reasons.
        (
            "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143)); tell(); signal.pause()",
            143,
            [],
        ),
    ],
)
def test_a_learner_that_does_not_listen_yet_is_ended_in_words(
    stage: Stage, learner: str, code: int, said: list[str]
) -> None:
    with stage.supervisor(learner=learner) as supervisor:
        if learner != PAUSE:
            stage.events.read_text()
        assert not supervisor.is_interrupted
        supervisor.signal(signal.SIGINT)
        assert supervisor.wait() == code and supervisor.is_interrupted
    assert len(stage.said) == len(said)
    for line, part in zip(stage.said, said, strict=True):
        assert line.startswith("the run ends: a signal asked for it: SIGINT") and part in line


def test_env_servers_are_asked_to_end_before_they_are_killed(stage: Stage) -> None:
    env_server = (
        "def end(*_): note('ended'); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, end); tell(); signal.pause()"
    )
    with stage.supervisor(env_server, learner="listen()") as supervisor:
        assert supervisor.wait() == 0
    assert stage.lines("ended") == ["x"]
    assert not supervisor.has_failed_env_server


def test_a_dead_env_server_is_started_again(stage: Stage) -> None:
    env_server = (
        "if os.path.exists('died'): tell(); signal.pause()\n"
        "note('died'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    with stage.supervisor(env_server, learner="listen()") as supervisor:
        assert supervisor.wait() == 0
    (line,) = stage.said
    assert line.startswith("env server 0 ended with 137 and is started again")
    assert supervisor.has_failed_env_server


@pytest.mark.parametrize("code", [0, 2, 6])
def test_an_env_server_that_ends_unasked_is_started_again_whatever_its_exit_code(
    stage: Stage, code: int
) -> None:
    env_server = (
        "if os.path.exists('died'): tell(); signal.pause()\n"
        f"print('connected: 16 x Bad-v0', flush=True); note('died'); os._exit({code})"
    )
    with stage.supervisor(env_server, learner="listen()") as supervisor:
        assert supervisor.wait() == 0
    (line,) = stage.said
    assert line.startswith(f"env server 0 ended with {code} and is started again")


def test_an_env_server_that_is_asked_to_end_by_somebody_else_is_started_again(
    stage: Stage,
) -> None:
    env_server = (
        "if os.path.exists('died'): tell(); signal.pause()\n"
        "note('died'); print('stopped', flush=True); sys.exit(0)"
    )
    with stage.supervisor(env_server, learner="listen()") as supervisor:
        assert supervisor.wait() == 0
    assert len(stage.said) == 1


def test_env_servers_that_all_keep_dying_end_the_run(stage: Stage) -> None:
    env_server = "note('starts'); print('out of luck'); sys.exit(3)"
    with stage.supervisor(env_server, env_server, learner=PAUSE, restarts=2) as supervisor:
        assert supervisor.wait() == 4
    assert len(stage.lines("starts")) == 6
    assert "2 times within a minute" in stage.said[-1] and "out of luck" in stage.said[-1]


def test_an_env_server_that_keeps_dying_rests_while_others_go_on(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restarts, "_MINUTE_SECONDS", 0.0)  # each rest is over at once
    bad = (
        "note('starts'); print('out of luck', flush=True)\n"
        "if len(open('starts').readlines()) == 3: tell(); signal.pause()\n"
        "sys.exit(3)"
    )
    with stage.supervisor(bad, PAUSE, learner="listen()", restarts=0) as supervisor:
        assert supervisor.wait() == 0
    # Whoever has lived for such a minute has a reason anew. That others have none: test_restarts.
    assert set(stage.said) == {
        f"env server 0 ended with 3; its log, {stage.folder}/env_server_0.log, ends: out of luck; "
        "the run goes on without it, and it is tried again every minute"
    }


def test_restarts_older_than_a_minute_are_forgotten(stage: Stage) -> None:
    env_server = (
        "note('starts')\n"
        "if len(open('starts').readlines()) == 4: tell(); signal.pause()\n"
        "sys.exit(3)"
    )
    minutes = iter(range(0, 6000, 60))
    supervisor = Supervisor(
        [stage.env_server(env_server)],
        learner=stage.learner("listen()"),
        restarts=1,
        clock=lambda: float(next(minutes)),
        say=stage.said.append,
    )
    with supervisor:
        assert supervisor.wait() == 0
    assert len(stage.lines("starts")) == 4


def test_a_refused_environment_ends_the_run_with_the_reason(stage: Stage) -> None:
    env_server = "note('starts'); print('ends: no such environment: Nope-v1'); sys.exit(2)"
    with stage.supervisor(PAUSE, env_server, learner=PAUSE) as supervisor:
        assert supervisor.wait() == 2
    assert stage.said == ["seedrl: error: env server 1 cannot run: no such environment: Nope-v1"]
    assert stage.reasons == [
        "the env servers failed: env server 1 cannot run: no such environment: Nope-v1"
    ]
    assert len(stage.lines("starts")) == 1


def test_films_that_cannot_be_written_end_it_with_their_own_code(stage: Stage) -> None:
    with stage.supervisor("print('ends: no film'); sys.exit(6)") as supervisor:
        assert supervisor.wait() == 6
    assert stage.said == ["seedrl: error: env server 0 failed: no film"]


def test_an_env_server_that_is_not_to_be_started_again_says_how_it_ended(stage: Stage) -> None:
    with stage.supervisor("print('bye'); sys.exit(3)", restarts=0) as supervisor:
        assert supervisor.wait() == 4
    assert stage.said == [
        "seedrl: error: env server 0 ended with 3; its log, "
        f"{stage.folder}/env_server_0.log, ends: bye"
    ]


def test_a_learner_that_does_not_end_is_killed(stage: Stage) -> None:
    learner = "signal.signal(signal.SIGTERM, signal.SIG_IGN); tell()\nwhile True: signal.pause()"
    stage.grace_seconds = 0.01
    with stage.supervisor(
        "listen(); print('ends: no'); sys.exit(2)", learner=learner
    ) as supervisor:
        assert supervisor.wait() == 2
    assert stage.said == [
        "seedrl: error: env server 0 cannot run: no",
        "the learner did not end in time and is killed",
    ]


def test_an_env_server_that_was_let_go_is_not_started_again(stage: Stage) -> None:
    first = "note('starts'); print('ends: finished: enough', flush=True); tell(); sys.exit(0)"
    second = "listen(); print('ends: no'); sys.exit(2)"
    with stage.supervisor(first, second, learner=PAUSE) as supervisor:
        assert supervisor.wait() == 2
    assert len(stage.lines("starts")) == 1
    assert len(stage.said) == 1


@pytest.mark.parametrize(
    "last", ["sys.exit(0)", "sys.exit(2)", "os.kill(os.getpid(), signal.SIGSEGV)"]
)
def test_one_that_has_heard_of_the_end_may_die_while_it_closes_its_environments(
    stage: Stage, last: str
) -> None:
    heard = "print('1 2 env server 3: ends: finished: enough'); print('closing\\n' * 10_000)"
    with stage.supervisor(
        f"{heard}; sys.stdout.flush(); tell(); {last}", learner="listen()", restarts=0
    ) as supervisor:
        assert supervisor.wait() == 0
    assert stage.said == []
    assert not supervisor.has_failed_env_server


def test_what_an_env_server_of_an_earlier_session_has_heard_is_not_this_ones_word(
    stage: Stage,
) -> None:
    command = stage.env_server("sys.exit(3)")
    assert command.log is not None
    command.log.write_text("1 2 env server 3: ends: finished: enough\n")
    with Supervisor([command], restarts=0, say=stage.said.append) as supervisor:
        assert supervisor.wait() == 4
    (line,) = stage.said
    assert line.startswith("seedrl: error: env server 0 ended with 3")


def test_the_first_signal_lets_the_learner_save(stage: Stage) -> None:
    with stage.supervisor(PAUSE, learner=SAVING) as supervisor:
        stage.events.read_text()
        supervisor.signal(signal.SIGINT)
        assert supervisor.wait() == 0
    assert stage.lines("saved") == ["x"]
    assert (stage.said, stage.reasons) == ([], ["SIGINT"])


def test_the_first_signal_leaves_a_learner_alone_that_saves_because_of_its_env_servers(
    stage: Stage,
) -> None:
    supervisor = Supervisor(
        [stage.env_server("listen(); print('ends: no'); sys.exit(2)")],
        learner=stage.learner(SAVING),
        restarts=0,
        give_reason=lambda reason: supervisor.signal(signal.SIGINT),
        say=stage.said.append,
    )
    with supervisor:
        assert supervisor.wait() == 2
    assert stage.lines("saved") == ["x"]


def test_a_learner_saves_where_supervision_itself_fails(stage: Stage) -> None:
    logs = stage.folder / "logs"
    logs.mkdir()
    env_server = stage.env_server("listen(); os.rename('logs', 'gone'); sys.exit(3)")
    supervisor = Supervisor(
        [env_server._replace(log=logs / "0.log")],
        learner=stage.learner(SAVING),
        restarts=1,
        say=stage.said.append,
    )
    with pytest.raises(FileNotFoundError), supervisor:
        supervisor.wait()
    assert stage.lines("saved") == ["x"]


def test_a_second_signal_kills(stage: Stage) -> None:
    learner = "signal.signal(signal.SIGTERM, lambda *_: tell()); tell()\nwhile True: signal.pause()"
    with stage.supervisor(PAUSE, learner=learner, clock=iter([5.0, 6.0]).__next__) as supervisor:
        stage.events.read_text()
        supervisor.signal(signal.SIGTERM)
        supervisor.signal(signal.SIGTERM)
        assert supervisor.wait() == 143


def test_a_copy_of_the_first_signal_lets_the_learner_save(stage: Stage) -> None:
    # `timeout` signals its child, and then the group that the child is in.
    with stage.supervisor(learner=SAVING, clock=iter([5.0, 5.9]).__next__) as supervisor:
        stage.events.read_text()
        supervisor.signal(signal.SIGTERM)
        supervisor.signal(signal.SIGTERM)
        assert supervisor.wait() == 0
    assert stage.lines("saved") == ["x"]


def test_signals_of_this_process_are_forwarded_and_the_handlers_put_back(stage: Stage) -> None:
    received: list[int] = []
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with forward_signals(received.append):
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
    assert received == [signal.SIGTERM, signal.SIGINT]
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_signals_are_kept_for_a_receiver_that_is_late() -> None:
    received: list[int] = []
    late = LateReceiver()
    with forward_signals(late):
        signal.raise_signal(signal.SIGINT)
        late.deliver_to(received.append)
        signal.raise_signal(signal.SIGTERM)
    assert received == [signal.SIGINT, signal.SIGTERM]


def test_env_servers_alone_are_supervised_until_stopped(stage: Stage) -> None:
    env_server = "if os.path.exists('died'): tell(); signal.pause()\nnote('died'); sys.exit(1)"
    codes: list[int] = []
    with stage.supervisor(env_server) as supervisor:
        watcher = threading.Thread(target=lambda: codes.append(supervisor.wait()))
        watcher.start()
        stage.events.read_text()  # started again
        supervisor.stop()
        watcher.join()
    assert codes == [0]
    assert len(stage.said) == 1


def test_env_servers_alone_end_the_wait_when_they_are_refused(stage: Stage) -> None:
    with stage.supervisor("print('ends: not allowed'); sys.exit(2)", PAUSE) as supervisor:
        assert supervisor.wait() == 2
    assert stage.said == ["seedrl: error: env server 0 cannot run: not allowed"]


def test_a_program_that_is_not_there_is_an_exit_like_any_other(stage: Stage) -> None:
    missing = Command("learner", ("/no/such/program",), {}, stage.folder / "log", signal.SIGTERM)
    supervisor = Supervisor([], learner=missing, restarts=0, say=stage.said.append)
    with supervisor:
        assert supervisor.wait() == 1
