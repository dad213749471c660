"""The commands as processes: wrong input is one line and exit code 2."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from learner.cli.main import main
from tests import started
from tests.patience import SECONDS


def run(*command: str, **variables: str) -> tuple[int, str, str]:
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, *command],
        env={**os.environ, "PYTHONPATH": path, **variables},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    return done.returncode, done.stdout, done.stderr


# What else jax refuses: tests/learner/processes/test_tuning.py.
def test_a_variable_with_which_jax_cannot_start_is_named(tmp_path: Path) -> None:
    command = ("-m", "learner", "cartpole_r2d2", "--workdir", str(tmp_path / "run"))
    code, out, error = run(*command, JAX_PLATFORMS="cuda")
    assert (code, out) == (2, "") and error.count("\n") == 1
    assert "JAX_PLATFORMS" in error and "cuda" in error


def test_a_signal_ends_a_run_that_reads_its_config_in_words_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    path = tmp_path / "my_config.py"
    path.write_text(
        "import os, signal\nfrom seedrl import config_io\n"
        "def config():\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n    return config_io.load('cartpole_r2d2')\n"
    )
    program = started.start(
        ["learner.cli.main", "train", str(path)],
        cwd=tmp_path,
        variables=started.variables(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, error = program.communicate(timeout=SECONDS)
    assert (program.returncode, out) == (0, "") and error.endswith(f"again: seedrl train {path}\n")
    assert error.count("\n") == 1
    assert set(os.listdir(tmp_path)) <= {"my_config.py", "__pycache__"}  # the config's bytecode


@pytest.mark.parametrize("words", ["learner.cli.main train", "learner"])
@pytest.mark.parametrize(
    ("number", "imported"),
    [
        (signal.SIGINT, "learner.cli.train"),
        (signal.SIGTERM, "learner.cli.train"),
        (signal.SIGINT, "typing"),  # Python's own, early and slow
    ],
)
def test_a_signal_while_modules_are_imported_is_one_line(
    tmp_path: Path, words: str, number: signal.Signals, imported: str
) -> None:
    module, *rest = words.split()
    program = (
        "import os, runpy, sys\n"
        "class Finder:\n"
        "    def find_spec(name, path, target=None):\n"
        f"        if name == {imported!r}:\n"
        f"            os.kill(os.getpid(), {int(number)})\n"
        "sys.meta_path.insert(0, Finder)\n"
        f"sys.argv = [{module!r}, *{rest!r}, 'cartpole_r2d2', '--workdir', {str(tmp_path)!r}]\n"
        f"runpy.run_module({module!r}, run_name='__main__', alter_sys=True)\n"
    )
    code, out, error = run("-c", program)
    assert (code, out) == (143, "") and error.count("\n") == 1
    assert number.name in error


def test_a_signal_ends_a_measurement_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "my_config.py"
    path.write_text(
        "import os, signal, tempfile\n"
        f"with tempfile.TemporaryDirectory(dir={str(tmp_path)!r}):\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n    signal.pause()\n"
    )
    assert run("-m", "learner.cli.main", "bounds", str(path)) == (143, "", "")
    assert set(os.listdir(tmp_path)) <= {"my_config.py", "__pycache__"}


HELP_AND_MISTAKES = {
    "--help": 0,
    "train --help": 0,
    "help train": 0,
    "resume --help": 0,
    "resume no/such/run": 2,
    "configs": 0,
    "configs pong_ppo": 0,
    "configs carpole": 2,
    "train carpole_r2d2": 2,
    "evaluate no/such/run": 2,
    "--version": 0,
}
# In one process, one after the other: what one has imported stays and is found after each.
IMPORTED = """
import sys
from learner.cli.main import main

for command in sys.argv[1:]:
    try:
        code = main(command.split())
    except SystemExit as end:
        code = end.code or 0
    heavy = sorted({"jax", "numpy", "grpc"} & sys.modules.keys())
    print(f"@after {command}: {code} {heavy}")
"""


def test_help_and_mistakes_import_neither_jax_nor_numpy() -> None:
    done, out, error = run("-c", IMPORTED, *HELP_AND_MISTAKES)
    assert done == 0, error
    found = [line for line in out.splitlines() if line.startswith("@after ")]
    assert found == [f"@after {command}: {code} []" for command, code in HELP_AND_MISTAKES.items()]


@pytest.mark.parametrize(
    ("line", "expected", "others"),
    [
        ("seedrl ", {"train", "check-env"}, {"pong_ppo"}),
        ("seedrl ch", {"check-env", "checkpoints"}, {"train"}),
        ("seedrl train pong", {"pong_ppo", "pong_r2d2"}, {"atari_r2d2"}),
        pytest.param(
            "seedrl train pong_ppo --",
            {"--agent.gae-lambda", "--envs", "--env-servers"},
            {"--agent.burn-in"},
            marks=pytest.mark.gate,  # options of another command: below
        ),
        ("seedrl check-env CartPole-v1 --", {"--num-envs"}, {"--seeds"}),
        ("seedrl evaluate ru", set(), {"runs", "evaluate"}),  # a path: the shell's own
        ("seedrl complete --", set(), {"--help"}),  # would complete itself without end
    ],
)
def test_a_shell_completes_commands_configurations_and_options(
    line: str,
    expected: set[str],
    others: set[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # A key is pressed in any folder: nothing there is imported.
    (tmp_path / "argparse.py").write_text("raise SystemExit")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COMP_LINE", line)
    assert main(["complete"]) == 0
    found = set(capsys.readouterr().out.split())
    assert expected <= found and not others & found
