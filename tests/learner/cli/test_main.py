"""The commands as processes: wrong input is one line and exit code 2."""

import os
import subprocess
import sys

import pytest

from learner.cli.main import COMMANDS, main


def run(*command: str) -> tuple[int, str, str]:
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, *command],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("learner cartpol --workdir {0}", "unknown config 'cartpol': did you mean cartpole_r2d2?"),
        ("learner cartpole_r2d2 --workdir {0} --agent.unrol 3", "did you mean --agent.unroll?"),
        ("learner cartpole_r2d2 --workdir {0} --agent.stride 7 --replay.page-steps 2", "of pages"),
        ("learner.cli.main train cartpole_r2d2 --learning.batch-sequences many", "invalid literal"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(
    command: str, message: str, tmp_path: os.PathLike[str]
) -> None:
    code, out, error = run("-m", *command.format(tmp_path).split())
    assert (code, out) == (2, "")
    assert error.count("\n") == 1 and ": error: " in error and message in error
    assert os.listdir(tmp_path) == []


def test_help_does_not_wait_for_jax() -> None:
    code = "import sys, learner.cli.main as m; m.main(['train', '--help'])"
    script = f"try: exec({code!r})\nexcept SystemExit: print('jax' in sys.modules)"
    done, out, _ = run("-c", f"import sys\n{script}")
    assert done == 0 and out.endswith("False\n")


def test_help_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in COMMANDS)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["trian"], "unknown command 'trian': did you mean train? expected train, evaluate"),
        ([], "unknown command '': expected train, evaluate"),
    ],
)
def test_an_unknown_command_gets_a_suggestion(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    assert message in capsys.readouterr().err


def test_serving_others_must_be_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["train", "cartpole_r2d2", "--bind", "0.0.0.0:8686"]) == 2
    assert "serving.insecure" in capsys.readouterr().err
