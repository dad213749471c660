"""The checker as a command, and env servers as processes."""

import json
import os
import signal
import sys
import time
from typing import Any

import pytest

from envs_server.server_conformance import dialogues, endings, links
from envs_server.server_conformance.__main__ import main
from envs_server.server_conformance.check import check
from envs_server.server_conformance.session import Plan
from envs_server.server_conformance.subject import Process
from seedrl.exit_codes import ExitCode
from seedrl.wire.seedrl_pb2 import Environment
from tests.patience import SECONDS

# Each start of a process costs a second: what needs several is tried in test_check.
_DIALOGUES = (
    dialogues.groups,
    dialogues.fewer,
    dialogues.metrics,
    dialogues.seeds,
    links.links,
    endings.returns,
    endings.finish,
)


def test_our_own_env_server_passes() -> None:
    environment = Environment(id="CartPole-v1", vectorization="auto")
    plan = Plan(environment=environment, patience_seconds=SECONDS, quiet_seconds=SECONDS)
    with Process(f"{sys.executable} -m envs_server", 4) as subject:
        report = check(subject, plan, _DIALOGUES)
    assert [each.line() for each in [*report.findings.errors, *report.findings.notes]] == []
    assert report.num_dialogues == len(_DIALOGUES)


def test_a_command_that_does_not_connect_is_said_with_its_last_words(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = r"zero\none\ntwo\n\nthree\n\x1b[31m\n"
    command = f'{sys.executable} -c \'import sys; sys.exit("{words}" + sys.argv[2] + " fails")\''
    assert main(["--command", command]) == ExitCode.BROKEN_ENVIRONMENT
    out, err = capsys.readouterr()
    assert err == "dialogue 1 of 20: steps\n"
    line, skipped, verdict = out.splitlines()
    assert line.startswith(
        "error  connect: expected a stream after its start, the env server ended with code 1; "
        "its last words: one | two | three | [31m | 127.0.0.1:"
    )
    advice = "open one Connect stream to the learner's address, and say Hello; see TRANSPORT in"
    assert line.endswith(f" fails; {advice} seedrl.proto")
    assert skipped == "skipped 19 more dialogues: this one must succeed"
    assert verdict.endswith("breaks a rule: 1 dialogues, 0 streams, 0 steps of CartPole-v1")


def test_a_checker_that_is_ended_leaves_no_env_server_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[Any] = []

    def interrupted(subject: Process, plan: Plan, **_: Any) -> None:
        subject.start("nowhere:1")
        started.append(subject._process)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(SECONDS)  # the signal ends it

    monkeypatch.setattr("envs_server.server_conformance.__main__.check", interrupted)
    before = signal.getsignal(signal.SIGTERM)
    assert main(["--command", f"sh -c 'exec sleep {SECONDS}' {{learner}}"]) == ExitCode.KILLED
    assert started[0].poll() is not None
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_report_can_be_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--command", "false", "--json"]) == ExitCode.BROKEN_ENVIRONMENT
    out, err = capsys.readouterr()
    report = json.loads(out)
    assert err == ""
    assert not report["passes"] and report["notes"] == []
    assert [error["rule"] for error in report["errors"]] == ["connect"]


def test_a_command_that_cannot_be_started_is_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--command", "no-such-program at-all"]) == ExitCode.USAGE
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("seedrl check-env-server: error: cannot start 'no-such-program at-all ")


def test_bad_numbers_are_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--command", "false", "--num-envs", "0"]) == ExitCode.USAGE
    assert "expected at least one environment" in capsys.readouterr().err
