"""Runs that Python code starts: `seedrl.train`."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seedrl
from learner.cli.arguments import parse
from learner.cli.train import TrainOptions
from seedrl import config_io
from seedrl.config import check
from seedrl.errors import ConfigError
from seedrl.exit_codes import ExitCode
from seedrl.fields import with_fields
from seedrl.run import Run, RunError, _error, leaves_of, words_of
from tests.patience import SECONDS
from tests.system.processes import ROOT, is_running

# As `SMALLEST` of the system tests, whose programs are compiled already.
TINY: dict[str, Any] = {
    "env_servers": 1,
    "serving": {"training_slots": 1, "evaluation_slots": 1},
    "agent": {
        "burn_in": 2,
        "unroll": 12,
        "n_steps": 2,
        "stride": 8,
        "target_update_interval": 7,
        "network": {
            "torso_sizes": (8,),
            "core": "none",
            "head_sizes": [8],
        },
    },
    "replay": {"min_steps": 64, "capacity_steps": 256},
    "learning.batch_sequences": 4,
    "evaluation": {"target_return": None, "episodes": 2, "interval_steps": 1},
    "logging": {"interval_seconds": 0.1, "learning_curve": False},
}
# A configuration of another process's, that trains until it is stopped.
PROGRAM = f"""
import pathlib, seedrl
run = seedrl.train("cartpole_r2d2", workdir="run", **{TINY!r})
for metrics in run:
    if metrics.get("updates", 0) > 0:
        break
print("trains", flush=True)
"""


def _reason(workdir: Path) -> str:
    reason: str = json.loads((workdir / "status.json").read_text())["reason"]
    return reason


def test_the_public_names_are_six_and_importing_them_is_cheap() -> None:
    code = """
import sys, seedrl
print({name for name in dir(seedrl) if not name.startswith("_")} - {*seedrl.__all__})
print(*sorted(seedrl.__all__))
print({"jax", "numpy", "argparse"} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names = "CharactersVocabulary TokenEnv TokenizerVocabulary bytes_vocabulary load_policy train"
    assert done.stdout.splitlines() == ["set()", names, "set()"]


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, list[dict[str, Any]]]:
    """A run that was stopped after an update and an evaluation, and the lines until then."""
    lines = []
    workdir = tmp_path_factory.mktemp("followed") / "run"
    with seedrl.train("cartpole_r2d2", workdir=workdir, **TINY) as run:
        for metrics in run:
            lines.append(metrics)
            if metrics.get("updates", 0) > 0 and any(
                each["kind"] == "evaluation" for each in lines
            ):
                break
    return run, lines


@pytest.mark.slow
def test_a_run_is_followed_stopped_and_played(followed: tuple[Run, list[dict[str, Any]]]) -> None:
    run, lines = followed
    assert lines[0]["kind"] == "session"
    assert run.wait() == ExitCode.OK and _reason(run.workdir).startswith("stopped by SIGTERM")
    # All lines, those that came while it was saved too, and a loop over a run that has ended ends.
    assert run.metrics[: len(lines)] == lines
    assert [*run] == run.metrics and run.metrics[-1]["kind"] == "ledger"
    for played in (run.policy(), seedrl.load_policy(run.workdir)):
        assert played(np.zeros(4, np.float32), played.initial_carry())[0] in (0, 1)
    config = config_io.of_run(run.workdir)
    assert config.agent.network.torso_sizes == (8,)
    assert config.learning.batch_sequences == 4 and config.evaluation.target_return is None


@pytest.mark.slow
def test_the_cells_of_the_notebook_follow_and_play_a_run(
    followed: tuple[Run, list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(config: str, **options: Any) -> Run:
        words = [word for item in leaves_of(options) for word in words_of(*item)]
        check(parse(TrainOptions, [config, *words], prog="seedrl train")[1])
        return followed[0]

    monkeypatch.setattr(seedrl, "train", train)
    notebook = json.loads((ROOT / "docs" / "examples" / "train.ipynb").read_text())
    names: dict[str, Any] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    assert names["curve"] and names["total"] >= 8


def test_a_program_that_ends_leaves_no_process_of_its_run(tmp_path: Path) -> None:
    code = "import seedrl; print(seedrl.train('cartpole_r2d2', workdir='run')._process.pid)"
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    pid = subprocess.check_output(
        [sys.executable, "-c", code], cwd=tmp_path, env=variables, stderr=subprocess.DEVNULL
    )
    assert not is_running(int(pid))


@pytest.mark.gate
@pytest.mark.parametrize("interrupts", [True, False])
def test_a_program_that_is_interrupted_or_ends_leaves_a_saved_run(
    tmp_path: Path, interrupts: bool
) -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM + "run.wait()\n" * interrupts],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with program:
        assert program.stdout is not None and program.stdout.readline() == "trains\n"
        if interrupts:
            program.send_signal(signal.SIGINT)
        _, said = program.communicate(timeout=SECONDS)
    assert program.returncode == (-signal.SIGINT if interrupts else 0), said
    assert _reason(tmp_path / "run").startswith("stopped by SIGTERM")
    assert any((tmp_path / "run" / "checkpoints").iterdir())


def test_what_is_wrong_is_the_error_line_of_the_run(tmp_path: Path) -> None:
    run = seedrl.train("cartpole_r2d2", workdir=tmp_path / "run", learning={"total_step": 3})
    for wait in (run.wait, run.wait, run.stop, lambda: [*run]):
        with pytest.raises(RunError) as refused:
            wait()
        assert refused.value.exit_code == ExitCode.USAGE
        text = str(refused.value)
        assert "total-step" in text and "error: " in text and "\n" not in text
    assert not run.workdir.exists() and run.metrics == []
    with pytest.raises(ConfigError) as missing:
        run.policy()
    assert "config.json" in str(missing.value)


def test_of_a_defect_the_error_line_is_the_last_of_the_traceback() -> None:
    output = "learner: error: an older one\nTraceback ...\nValueError: boom\nlearner: internal"
    assert str(_error(output, ExitCode.INTERNAL)) == "ValueError: boom"


def test_a_config_object_reaches_the_run_with_its_own_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a module in the current folder, which a run remembers; what it sees is the last error"""
    (tmp_path / "my_agent.py").write_text(
        "from dataclasses import dataclass\nfrom seedrl.agents.r2d2 import R2D2Config\n"
        "@dataclass(frozen=True, kw_only=True)\nclass MyConfig(R2D2Config):\n"
        "    def build(self, spec):\n        raise ValueError(f'own {self.unroll}')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    import my_agent  # type: ignore[import-not-found]

    loaded = config_io.load("cartpole_r2d2")
    config = with_fields(loaded, {"agent": my_agent.MyConfig(unroll=13)})
    run = seedrl.train(config, workdir="run", serving={"training_slots": 2})
    with pytest.raises(RunError) as refused:
        run.wait()
    assert "own 13" in str(refused.value) and run.workdir == tmp_path / "run"


def test_a_class_of_a_script_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_io.load("cartpole_r2d2")
    monkeypatch.setattr(type(config.agent), "__module__", "__main__")
    with pytest.raises(ConfigError) as refused:
        seedrl.train(config)
    assert "__main__:R2D2Config" in str(refused.value)
