"""Runs that Python code starts: `seedrl.train`.

One is followed and played in tests/system/test_small_run.py.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import seedrl.run
from learner.cli.train import read
from seedrl import config_io
from seedrl.config import Config
from seedrl.errors import ConfigError
from seedrl.exit_codes import ExitCode
from seedrl.fields import with_fields
from seedrl.run import RunError, _error
from tests.system.processes import ROOT, is_running


def test_the_public_names_are_six_and_importing_them_is_cheap() -> None:
    code = """
import sys, seedrl
print({name for name in vars(seedrl) if not name.startswith("_")} - {*seedrl.__all__})
print(*dir(seedrl))  # of completion in a shell, too
print({"jax", "numpy", "argparse"} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names = "CharactersVocabulary TokenEnv TokenizerVocabulary bytes_vocabulary load_policy train"
    assert done.stdout.splitlines() == ["set()", names, "set()"]


def test_a_program_that_ends_leaves_no_process_of_its_run(tmp_path: Path) -> None:
    code = "import seedrl; print(seedrl.train('cartpole_r2d2', workdir='run')._process.pid)"
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    pid = subprocess.check_output(
        [sys.executable, "-c", code], cwd=tmp_path, env=variables, stderr=subprocess.DEVNULL
    )
    assert not is_running(int(pid))


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


@pytest.mark.gate  # own classes of a file: tests/system/test_plugins.py
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


def test_a_config_object_is_the_run_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = config_io.load("cartpole_r2d2")
    config = with_fields(loaded, {"serving.insecure": True, "serving.token_file": "later"})
    started: list[Config] = []

    def start(words: list[str], _: Path, folder: Path) -> None:
        started.append(read(words)[1])
        shutil.rmtree(folder)

    monkeypatch.setattr(seedrl.run, "Run", start)
    seedrl.train(config, workdir=tmp_path)
    assert started == [config]


def test_a_class_of_a_script_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_io.load("cartpole_r2d2")
    monkeypatch.setattr(type(config.agent), "__module__", "__main__")
    with pytest.raises(ConfigError) as refused:
        seedrl.train(config)
    assert "__main__:R2D2Config" in str(refused.value)
