"""The env server as a process: signals, exit codes and what it says."""

import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seedrl.wire.seedrl_pb2 import Environment
from tests import started
from tests.patience import SECONDS
from tests.started import env_server


@pytest.mark.parametrize(
    ("learner", "number"),
    [("stream", signal.SIGTERM), ("link", signal.SIGINT)],
    indirect=["learner"],
)
def test_a_signal_ends_the_process_cleanly(learner: Any, number: signal.Signals) -> None:
    ready = threading.Event()

    def endless(messages: Iterator[Any], context: Any) -> Iterator[Any]:
        for answer in learner.play(learner.assign([1], [2]), 10**9)(messages, context):
            ready.set()
            yield answer

    learner.serve(endless)
    words = ("--learner", learner.address, "--num-envs", "2", "--allow-env", "seedrl_plugin.*")
    process = env_server(*words)
    assert ready.wait(SECONDS)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=SECONDS)
    assert process.returncode == 0
    assert "Traceback" not in stderr
    assert stderr.splitlines()[-1].endswith("stopped")


@pytest.mark.parametrize("learner", ["stream"], indirect=True)  # nobody is there to offer a link
def test_a_signal_ends_the_wait_for_a_learner(learner: Any) -> None:
    process = env_server("--learner", learner.address, "--num-envs", "1")
    assert process.stderr
    assert "waiting for the learner" in process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=SECONDS)
    assert process.returncode == 0 and "Traceback" not in stderr


@pytest.mark.parametrize("learner", ["stream"], indirect=True)
def test_the_script_imports_from_the_current_folder(learner: Any, tmp_path: Path) -> None:
    """`python -m envs_server` did, `seedrl-env-server` did not find the same module."""
    (tmp_path / "mine.py").write_text(
        "import gymnasium\ndef make():\n    return gymnasium.make('CartPole-v1')\n"
    )
    environment = Environment(id="mine:make", vectorization="sync")
    learner.serve(learner.play(learner.assign([1, 2], environment=environment), 5))
    script = tmp_path / "bin" / "seedrl-env-server"
    script.parent.mkdir()
    script.write_text("from envs_server.__main__ import main; main()")
    words = ["--learner", learner.address, "--num-envs", "2", "--allow-env", "mine:make"]
    process = started.python(str(script), *words, cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    assert "connected: 2 x mine:make" in process.stderr


@pytest.mark.parametrize(("flags", "is_there"), [([], True), (["-P"], False)])
def test_a_learners_env_server_imports_nothing_from_the_current_folder(
    tmp_path: Path, flags: list[str], is_there: bool
) -> None:
    """A learner starts it with -P: the current folder may be a run's, and anybody's."""
    source = (
        "import os, sys, envs_server.__main__ as program\n"
        "program.leave = lambda code: print(os.getcwd() in sys.path)\n"
        "program.main(['--num-envs', '0'])"
    )
    process = started.python(*flags, "-c", source, cwd=tmp_path)
    assert process.stdout == f"{is_there}\n", process.stderr
