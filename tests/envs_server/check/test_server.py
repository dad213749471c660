"""`seedrl check-env-server`: a sound env server passes, and whatever is broken in one is named."""

import json
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from envs_server.check import trial
from envs_server.check.check_server import main
from envs_server.check.learner import Process
from envs_server.check.server import DIALOGUES, Dialogue, check
from envs_server.check.server_options import Options
from envs_server.check.trial import NOTES, Trial
from seedrl.exit_codes import ExitCode
from seedrl.wire.seedrl_pb2 import Assign, Failure, FromEnvServer, FromLearner, Group, Hello
from tests.envs_server.check.example_server import (
    LAST,
    MID,
    CartPole,
    ExampleServer,
    OwnDefectError,
)
from tests.patience import SECONDS

OPTIONS = Options(command="", steps=30, patience_seconds=SECONDS)
BY_NAME = {dialogue.name: dialogue for dialogue in DIALOGUES}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pauses, and as much patience as elsewhere."""
    monkeypatch.setattr(trial, "QUIET_SECONDS", SECONDS)


def _check(subject: Any, dialogues: Sequence[Dialogue] = DIALOGUES, **changed: Any) -> Trial:
    options = Options(**{"command": "", "steps": 30, "patience_seconds": SECONDS, **changed})
    return check(subject, options, dialogues)


@pytest.mark.parametrize("num_envs", [1, 2, 4])
def test_a_sound_env_server_passes(num_envs: int) -> None:
    done = _check(ExampleServer(num_envs))
    assert done.findings.lines() == []
    assert done.num_streams > len(DIALOGUES) and done.num_steps > 300
    assert len(done.skipped) == (num_envs == 1)


def test_our_own_env_server_passes() -> None:
    # Each start of a process costs a second: one of each kind of dialogue.
    names = ("steps", "several groups", "seeds")
    names += ("return after ABORTED", "Finish", "refuse a seed of 2^31", "two answers to one step")
    with Process(f"{sys.executable} -m envs_server", 4) as subject:
        done = _check(subject, [BY_NAME[name] for name in names], num_envs=4)
    assert done.findings.lines() == []


class OldVersion(ExampleServer):
    def hello(self) -> Hello:
        hello = super().hello()
        hello.major = 1
        return hello


class Fails(ExampleServer):
    def step(self, group: int, actions: np.ndarray) -> None:
        self.send(FromEnvServer(failure=Failure(reason="no licence")))


class Infinite(CartPole):
    def end(self) -> None:
        super().end()
        self.reward = np.inf


class SameStepReset(CartPole):
    """As gymnasium's SAME_STEP autoreset: after LAST the first observation is lost."""

    def end(self) -> None:
        super().end()
        if self.step_type == LAST:
            super().reset()
            self.step_type, self.reward = LAST, 1.0

    def step(self, action: int) -> None:
        if self.step_type == LAST:
            self.step_type = MID
        super().step(action)


class OneAMessage(ExampleServer):
    def handle(self, message: FromLearner) -> None:
        if len(message.actions) > 24:
            raise OwnDefectError("too many actions")
        super().handle(message)


class AllThatIsOffered(ExampleServer):
    def build_group(self, group: Group) -> list[CartPole]:
        return [self.cartpole(seed) for seed in range(self.num_envs)]

    def step(self, group: int, actions: np.ndarray) -> None:
        super().step(group, np.resize(actions, self.num_envs))


class OneSeed(CartPole):
    def __init__(self, seed: int) -> None:
        super().__init__(0)


class Stubborn(ExampleServer):
    def after_status(self, code: str) -> int | None:
        return None if code == "PERMISSION_DENIED" else super().after_status(code)


class Cheerful(ExampleServer):
    def after_status(self, code: str) -> int | None:
        return 0 if super().after_status(code) else None


class Sad(ExampleServer):
    def after_finish(self) -> int | None:
        return 1

    def after_sigterm(self) -> int:
        return 143


class BuildsAnything(ExampleServer):
    def known(self) -> Sequence[str]:
        return ["CartPole-v1", "seedrl-no-such-environment-v0"]

    def known_arguments(self) -> Sequence[str]:
        return ["", "{}", '{"seedrl_no_such_argument": 1}']

    def is_followed(self, assign: Assign) -> bool:
        return bool(assign.groups)


class Credulous(ExampleServer):
    """Takes any actions as those that it waits for."""

    def read(self, data: bytes) -> tuple[int, np.ndarray, int]:
        group, size, _ = struct.unpack_from("<IIQ", data)
        group = min(group, len(self.sent) - 1)
        end = 16 + -(-size * 4 // 8) * 8
        return group, np.resize(np.frombuffer(data[16:], "<i4"), self.sent[group][0]), end


def _with(environment: type[CartPole]) -> type[ExampleServer]:
    return type(environment.__name__, (ExampleServer,), {"cartpole": environment})


FEWER = "one environment, and a field that no version knows"


@pytest.mark.parametrize(
    ("subject", "dialogue", "rule"),
    [
        (OldVersion, "steps", "hello"),
        (Fails, "steps", "failure"),
        (_with(Infinite), "steps", "steps"),
        (_with(SameStepReset), "steps", "steps"),
        (OneAMessage, "several groups", "groups"),
        (AllThatIsOffered, FEWER, "fewer"),
        (_with(OneSeed), "seeds", "seed-ignored"),
        (Stubborn, "end after PERMISSION_DENIED", "end"),
        (Cheerful, "end after INVALID_ARGUMENT", "end"),
        (Sad, "Finish", "end"),
        (Sad, "SIGTERM", "sigterm"),
        (BuildsAnything, "refuse an unknown environment", "refusal"),
        (BuildsAnything, "refuse an unknown argument", "refusal"),
        (BuildsAnything, "refuse a seed of 2^31", "refusal"),
        (BuildsAnything, "refuse a slot that occurs twice", "refusal"),
        (Credulous, "an answer to the step before", "breach"),
        (Credulous, "two answers to one step", "breach"),
        (Credulous, "actions of an unknown group", "breach"),
        (Credulous, "actions that are too short", "breach"),
    ],
)
def test_a_fault_is_named_by_its_rule(
    subject: type[ExampleServer], dialogue: str, rule: str
) -> None:
    findings = _check(subject(), [BY_NAME[dialogue]], patience_seconds=2.0).findings
    assert {finding.rule for finding in (*findings.errors, *findings.notes)} == {rule}
    assert bool(findings.errors) == (rule not in NOTES)


class Silent(ExampleServer):
    def send(self, message: FromEnvServer) -> None:
        pass


def test_an_env_server_without_a_step_is_tried_once() -> None:
    done = _check(Silent(), patience_seconds=0.3)
    assert [finding.rule for finding in done.findings.errors] == ["silence"]
    assert done.skipped == [f"{len(DIALOGUES) - 1} more dialogues: this one must succeed"]


def test_a_command_that_does_not_connect_is_reported_with_its_last_words(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = f"{sys.executable} -c 'import sys; sys.exit(sys.argv[2] + \" fails\")'"
    assert main(["--command", command, "--json"]) == ExitCode.FAULTS
    out, err = capsys.readouterr()
    report = json.loads(out)
    assert not report["passes"] and err == ""
    (error,) = report["errors"]
    assert error["rule"] == "connect" and " fails" in error["text"]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--command", "no-such-program"], "cannot start 'no-such-program"),
        (["--command", "x", "--arguments", "[1]"], "--arguments"),
        (["--command", "x", "--num-envs", "0"], "--num-envs"),
        ([], "--command"),
    ],
)
def test_wrong_arguments_are_one_line(
    words: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == ExitCode.USAGE
    error = capsys.readouterr().err
    assert error.startswith("seedrl check-env-server: ") or "dialogue 1" in error
    assert named in error


def test_sigterm_ends_the_env_server_too() -> None:
    code = "import os, sys, time; print(os.getpid(), file=sys.stderr); time.sleep(1000)"
    words = ["--command", f"{sys.executable} -c '{code}'"]
    checker = subprocess.Popen(
        [sys.executable, "-m", "learner.cli.main", "check-env-server", *words],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert checker.stderr is not None and "dialogue 1" in checker.stderr.readline()
    (child,) = _children(checker.pid)
    checker.send_signal(signal.SIGTERM)
    assert checker.wait(SECONDS) == ExitCode.KILLED
    checker.stderr.close()
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def _children(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children") as found:
        return [int(child) for child in found.read().split()]
