"""`seedrl check-env`: its report and exit codes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from envs_server.check.__main__ import main
from seedrl.exit_codes import ExitCode

_FEW = ["--steps", "40", "--num-envs", "2"]


def _check_env(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "learner.cli.main", "check-env", *arguments],
        cwd=Path(__file__).parent,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_what_passes_is_summed_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["example_envs:DictWalk", *_FEW]) == ExitCode.OK
    out, err = capsys.readouterr()
    verdict, *lines = out.splitlines()
    assert verdict == "example_envs:DictWalk passes" and err == ""
    shown = {name: value for name, _, value in (line.strip().partition("  ") for line in lines)}
    assert shown["observation"] == "left int64[], place.x float64[]"
    assert shown["actions"].strip() == "3"
    assert shown["played"].strip() == "2 x 40 steps on the sync back end"


def test_a_broken_environment_has_its_exit_code_and_a_line() -> None:
    done = _check_env("example_envs:NanReward", *_FEW)
    assert (done.returncode, done.stderr) == (ExitCode.FAULTS, "")
    line, *_, verdict = done.stdout.splitlines()
    assert line.startswith("error  fails: environment 0") and "-inf" in line
    assert verdict == "example_envs:NanReward breaks a rule"


def test_threads_and_output_of_an_environment_neither_hold_nor_spoil_the_report() -> None:
    done = _check_env("example_envs:Chatty", "--json", *_FEW)
    report = json.loads(done.stdout)
    assert done.returncode == ExitCode.OK and report["passes"]
    assert "by Python" in done.stderr and "by C" in done.stderr


def test_a_report_can_be_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["example_envs:FixedLength", "--json", *_FEW]) == ExitCode.OK
    report = json.loads(capsys.readouterr().out)
    assert report["passes"] and report["errors"] == []
    assert report["notes"] == []
    assert report["spec"] == {
        "action": {"discrete": 3},
        "observation": {"array": {"dtype": "float32", "shape": [2]}},
    }
    first = {"length": 4, "score": pytest.approx(-0.4), "is_terminated": True}
    assert report["episodes"][0] == first
    assert report["steps_per_second"] > 0


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["NoSuchGame-v0"], "cannot build NoSuchGame-v0: "),
        (["no_such_module:make"], "cannot import no_such_module"),
        (["posixpath:abspath", "--arguments", "7"], "expected a JSON object"),
        (["example_envs:Walk", "--seed", "-1"], "--seed"),
    ],
)
def test_what_cannot_be_built_is_one_line_and_exit_code_2(
    arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == ExitCode.USAGE
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    assert err.startswith("seedrl check-env: error: ") and reason in err
