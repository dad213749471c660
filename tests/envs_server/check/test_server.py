"""`seedrl check-env-server`: a sound env server passes, and whatever is broken in one is named."""

import os
import signal
import struct
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from envs_server.check import server
from envs_server.check.findings import Findings
from envs_server.check.server import DIALOGUES, NOTES, Options, Process, check, main
from seedrl.exit_codes import ExitCode
from seedrl.wire.seedrl_pb2 import Failure, FromEnvServer, FromLearner, Group, Hello
from tests.envs_server.check.example_server import LAST, MID, ExampleServer, OwnDefectError, Walk
from tests.patience import SECONDS
from tests.system.processes import wait_until_gone


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """As much patience as elsewhere."""
    monkeypatch.setattr(server, "QUIET_SECONDS", SECONDS)


def _check(subject: Any, names: Sequence[str] = tuple(DIALOGUES), **changed: Any) -> Findings:
    options = {"command": "", "steps": 80, "patience_seconds": SECONDS, **changed}
    return check(subject, Options(**options), names)


@pytest.mark.parametrize("num_envs", [pytest.param(1, marks=pytest.mark.gate), 4])
def test_a_sound_env_server_passes(num_envs: int) -> None:
    assert _check(ExampleServer(num_envs)).lines("it") == ["it passes"]


def test_our_own_env_server_passes() -> None:
    # Each start of a process costs half a second: one of each kind of dialogue.
    names = ("several groups", "return after ABORTED", "Finish", "refuse an unknown argument")
    findings = _check(Process(f"{sys.executable} -m envs_server", 4), names)
    assert findings.lines("it") == ["it passes"]


def test_our_own_env_server_asks_the_next_question() -> None:
    id_ = "envs_server.envs.token_tasks:reverse"
    command = f"{sys.executable} -m envs_server --allow-env {id_}"
    findings = _check(Process(command, 4), ("next questions",), environment=id_)
    assert findings.lines("it") == ["it passes"]


def _broken(name: str, **own: Any) -> type[ExampleServer]:
    return type(name, (ExampleServer,), own)


def _old_hello(self: ExampleServer) -> Hello:
    return Hello(major=1, num_envs=self.num_envs, num_groups=2, host="h", pid=1)


def _fails(self: ExampleServer, group: int, actions: np.ndarray) -> None:
    self.send(FromEnvServer(failure=Failure(reason="no licence")))


OldVersion = _broken("OldVersion", hello=_old_hello)
Fails = _broken("Fails", step=_fails)
Sad = _broken("Sad", after_finish=lambda self: 1)
BuildsAnything = _broken("BuildsAnything", is_followed=lambda self, assign: bool(assign.groups))
Silent = _broken("Silent", send=lambda self, message: None)


class Infinite(Walk):
    def end(self) -> None:
        super().end()
        self.row["reward"] = np.inf


class SameStepReset(Walk):
    """As gymnasium's SAME_STEP autoreset: after LAST the first observation is lost."""

    def end(self) -> None:
        super().end()
        if self.row["type"] == LAST:
            super().reset()
            self.row["type"] = LAST

    def step(self, action: int) -> None:
        if self.row["type"] == LAST:
            self.row["type"] = MID
        super().step(action)


class OneAMessage(ExampleServer):
    def handle(self, message: FromLearner) -> None:
        if len(message.actions) > 24:
            raise OwnDefectError("too many actions")
        super().handle(message)


class AllThatIsOffered(ExampleServer):
    def build_group(self, group: Group) -> Sequence[Walk]:
        return [self.walk(seed) for seed in range(self.num_envs)]

    def read(self, data: bytes) -> tuple[int, np.ndarray, int]:
        return 0, np.zeros(self.num_envs, int), len(data)


class OneSeed(Walk):
    def __init__(self, seed: int) -> None:
        super().__init__(0)


class OtherEachTime(Walk):
    def __init__(self, seed: int) -> None:
        super().__init__(int.from_bytes(os.urandom(4)))


class Stubborn(ExampleServer):
    def after_status(self, code: str) -> int | None:
        return None if code == "PERMISSION_DENIED" else super().after_status(code)


class Cheerful(ExampleServer):
    def after_status(self, code: str) -> int | None:
        return 0 if super().after_status(code) else None


class Credulous(ExampleServer):
    """Takes any actions as those that it waits for."""

    def read(self, data: bytes) -> tuple[int, np.ndarray, int]:
        group, size, _ = struct.unpack_from("<IIQ", data)
        group = min(group, len(self.envs) - 1)
        end = 16 + -(-size * 4 // 8) * 8
        return group, np.resize(np.frombuffer(data[16:], "<i4"), len(self.envs[group])), end


@pytest.mark.parametrize(
    ("subject", "dialogue", "rule"),
    [
        (OldVersion, "steps", "Hello"),
        (Silent, "steps", "TIME LIMITS"),
        (Fails, "steps", "Failure"),
        (_broken("Infinite", walk=Infinite), "steps", "STEPS AND ACTIONS"),
        (_broken("SameStepReset", walk=SameStepReset), "steps", "STEPS AND ACTIONS"),
        (OneAMessage, "several groups", "STEPS AND ACTIONS"),
        (AllThatIsOffered, "one environment", "STEPS AND ACTIONS"),
        (_broken("NoReset", reset=lambda self, group: None), "resets", "STEPS AND ACTIONS"),
        (_broken("OneSeed", walk=OneSeed), "seeds", "seed ignored"),
        (_broken("OtherEachTime", walk=OtherEachTime), "seeds", "Group.seeds"),
        (Stubborn, "end after PERMISSION_DENIED", "HOW A STREAM ENDS"),
        (Cheerful, "end after INVALID_ARGUMENT", "HOW A STREAM ENDS"),
        (Sad, "Finish", "HOW A STREAM ENDS"),
        (BuildsAnything, "refuse an unknown environment", "Refusal"),
        (BuildsAnything, "refuse an unknown argument", "Refusal"),
        (Credulous, "an answer to the step before", "BREACHES"),
        (Credulous, "two answers to one step", "BREACHES"),
    ],
)
def test_a_fault_is_named_by_its_rule(
    subject: type[ExampleServer], dialogue: str, rule: str
) -> None:
    # Some are silent, which is waited for.
    patience = 2.0 if rule in ("TIME LIMITS", "BREACHES") else SECONDS
    findings = _check(subject(), [dialogue], patience_seconds=patience)
    assert {finding.rule for finding in (*findings.errors, *findings.notes)} == {rule}
    assert bool(findings.errors) == (rule not in NOTES)


def test_a_command_that_does_not_connect_fails_the_check(capfd: pytest.CaptureFixture[str]) -> None:
    command = f"{sys.executable} -c 'import sys; sys.exit(sys.argv[2] + \" fails\")'"
    assert main(["--command", command]) == ExitCode.FAULTS
    out, err = capfd.readouterr()
    error, verdict = out.splitlines()
    assert error.startswith("error  TRANSPORT: ") and "exit code 1" in error
    assert "more were not tried" in error and verdict.endswith("breaks a rule")
    assert " fails" in err


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--command", "no-such-program"], "--command"),
        (["--command", "x", "--num-envs", "0"], "--num-envs"),
        ([], "--command"),
    ],
)
def test_wrong_arguments_are_one_line(
    words: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == ExitCode.USAGE
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("seedrl check-env-server: error: ") and named in error


def test_sigterm_ends_the_env_server_too() -> None:
    code = "import os, sys, time; print(os.getpid(), file=sys.stderr, flush=True); time.sleep(1000)"
    words = ["--command", f"{sys.executable} -c '{code}'"]
    checker = subprocess.Popen(
        [sys.executable, "-m", "learner.cli.main", "check-env-server", *words],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert checker.stderr is not None and "dialogue 1" in checker.stderr.readline()
    child = int(checker.stderr.readline())
    checker.send_signal(signal.SIGTERM)
    assert checker.wait(SECONDS) == ExitCode.KILLED
    checker.stderr.close()
    wait_until_gone({child})
