"""The checker's report and exit code."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from envs_server.conformance.__main__ import main
from seedrl.exit_codes import ExitCode

_FEW = ["--steps", "40", "--num-envs", "2"]


def test_what_passes_is_summed_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["example_envs:DictWalk", *_FEW]) == ExitCode.OK
    out, err = capsys.readouterr()
    *lines, speed = out.splitlines()
    assert lines == [
        "example_envs:DictWalk passes",
        "  observation  left int64[], place.x float64[]",
        "  actions      3",
        "  played       2 x 40 steps on the sync back end, 72 bytes a message",
        "  episodes     7 ended, 7 terminated and 0 truncated; length 5 to 12 (mean 8.571), "
        "return -1.2 to -0.5 (mean -0.8571)",
    ]
    assert re.fullmatch(r"  speed        [\d,]+ steps/s in one process", speed)
    assert err == ""


def test_a_missing_gymnasium_is_one_line() -> None:
    code = (
        "import sys; sys.modules['gymnasium'] = None; "
        "from envs_server.conformance.__main__ import main; sys.exit(main(['CartPole-v1']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stderr == (
        "seedrl check-env: error: expected the package gymnasium, which is not installed; pip "
        "install seedrl\n"
    )
    assert done.returncode == ExitCode.USAGE


def test_numbers_in_the_info_of_last_steps_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["envs_server.envs.counting:make", *_FEW]) == ExitCode.OK
    lines = capsys.readouterr().out.splitlines()
    assert "  info         action, step: reported if named in environment.metrics" in lines


def test_what_is_wrong_comes_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["example_envs:NanReward", *_FEW]) == ExitCode.BROKEN_ENVIRONMENT
    out, err = capsys.readouterr()
    line, verdict = out.splitlines()
    assert line.startswith("error  reward-finite: step 2: expected a finite reward, got -inf (")
    assert line.endswith("times); return a reward that is finite as float32")
    assert verdict.startswith("example_envs:NanReward breaks a rule; what follows was not")
    assert err == ""


def test_a_report_can_be_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["example_envs:FixedLength", "--json", *_FEW]) == ExitCode.OK
    report = json.loads(capsys.readouterr().out)
    assert report["passes"] and report["errors"] == []
    assert [note["rule"] for note in report["notes"]] == ["same-length"]
    assert report["spec"] == {
        "action": {"discrete": 3},
        "observation": {"array": {"dtype": "float32", "shape": [2]}},
    }
    assert report["episodes"][0] == {
        "length": 4,
        "score": pytest.approx(-0.4),
        "is_terminated": True,
    }
    assert report["num_steps"] == 2 * 32 and report["steps_per_second"] > 0

    assert main(["example_envs:SpoilingVectors", "--json", *_FEW]) == ExitCode.BROKEN_ENVIRONMENT
    report = json.loads(capsys.readouterr().out)
    assert not report["passes"] and [error["rule"] for error in report["errors"]] == [
        "action-input"
    ]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["NoSuchGame-v0"], "cannot build NoSuchGame-v0: "),
        (["no_such_module:make"], "cannot import no_such_module"),
        (["posixpath:abspath", "--arguments", "7"], "expected a JSON object"),
        (["os:CartPole-v1", "--allow-env", "*"], "expected a registered gymnasium id or package"),
    ],
)
def test_what_cannot_be_built_is_one_line_and_exit_code_2(
    arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == ExitCode.USAGE
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    assert err.startswith("seedrl check-env: error: ") and reason in err


def test_what_the_environment_prints_is_kept_out_of_the_report(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["example_envs:Chatty", "--json", *_FEW]) == ExitCode.OK
    out, err = capsys.readouterr()
    assert json.loads(out)["passes"]
    assert "a new episode" in err


def test_a_defect_of_the_checker_is_not_the_environments(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("envs_server.conformance.check.check", lambda *_: 1 / 0)
    assert main(["CartPole-v1"]) == ExitCode.INTERNAL
    assert "ZeroDivisionError" in capsys.readouterr().err
