"""Every command in README.md and docs: its configuration is valid, and its flags exist."""

import contextlib
import functools
import io
import re
import shlex
from pathlib import Path

import pytest

import envs_server.check.__main__ as check_env
from envs_server.check import server as check_env_server
from envs_server.options import read_options
from learner.cli import launch, main, train
from learner.cli.arguments import parse
from learner.cli.experiment import checked_runs
from seedrl.config import check
from seedrl.programs.command_line import read
from tests.documented import (
    ENGINES,
    ROOT,
    Command,
    commands,
    commands_in_sentences,
    write_files,
)

# What stands for something of the reader's, and an example of it.
_PLACEHOLDERS = {
    "COMMAND": "runs",
    "CONFIG": "cartpole_r2d2",
    "S": "1",
    "N": "1",
    "DIRECTORY": "runs",
    "RUN": "runs/a",
}


@pytest.mark.parametrize("command", sorted(set(commands())), ids=lambda command: command.words)
def test_a_documented_command_is_understood(command: Command, tmp_path: Path) -> None:
    write_files(ROOT / command.file, tmp_path)
    _understand(command.file, command.argv, tmp_path)


def test_a_command_in_a_sentence_is_understood(tmp_path: Path) -> None:
    found = sorted(set(commands_in_sentences()) - set(commands()))
    assert len(found) > 30
    for file, words in found:
        argv = [_PLACEHOLDERS.get(word, word) for word in shlex.split(words)]
        argv = [word for word in argv if word not in ("--help", "--help-all")]
        match argv:
            case ["seedrl", "--version"]:
                pass
            case ["seedrl", name]:  # the command in general
                assert name in main.COMMANDS, f"{file}: {words}"
            case ["python", "-m", "learner" | "envs_server"]:
                pass
            case _:
                _understand(file, argv, tmp_path)


def _understand(file: str, command: list[str], folder: Path) -> None:
    """Fails if a program would refuse this command; `folder` has the Python files of `file`."""
    match command:
        case ["seedrl", "train", *argv]:
            argv = _found(file, argv, folder)
            _, config = parse(train.TrainOptions, argv, prog="seedrl train")
            check(config)
        case ["seedrl", "resume", _, *argv]:
            parse(train.ResumeOptions, ["cartpole_r2d2", *argv], prog="seedrl resume")
        case ["python", "-m", "learner", *argv]:
            # What serves other machines must be asked for: --bind is part of the check.
            argv = _found(file, argv, folder)
            _, config = parse(train.LearnerOptions, argv, prog="learner")
            check(config)
        case ["python", "-m", "envs_server", *argv]:
            read_options(argv)
        case ["seedrl", "check-env", *argv]:  # these two become another program
            read(check_env.Options, argv, prog="check-env")
        case ["seedrl", "check-env-server", *argv]:
            read(check_env_server.Options, argv, prog="check-env-server")
        case ["seedrl", "experiment", grid, *argv]:
            write_files(ROOT / "docs" / "experiments.md", folder)
            checked_runs(folder / grid)
            _require_flags(argv, _help("experiment", "--help"))
        case ["seedrl", "launch", *argv]:
            launch.read(argv)
        case ["seedrl", "pretrain", _, *argv]:
            _require_flags(argv, _help("pretrain", "reverse_grpo", "--help-all"))
        case ["seedrl", name, *argv]:
            _require_flags(argv, _help(name, "--help"))
        case ["python", "-m", module, *argv]:
            source = Path(ROOT, *module.split("."))
            source = source / "__main__.py" if source.is_dir() else source.with_suffix(".py")
            _require_flags(argv, source.read_text() + _help("bench", "--help"))
        case [engine, *argv] if engine in ENGINES:
            # The files that it takes are copies of the examples.
            named = [Path(word).stem for word in argv if re.search(r"^[^:]+\.(yaml|sbatch)$", word)]
            assert all(list((ROOT / "configs" / "jobs").glob(f"{name}*")) for name in named), argv
        case ["python", "-c", code, *_]:
            compile(code, file, "exec")
        case ["python", script, *_]:
            assert [*(ROOT / "docs" / "examples").rglob(script)]
        case ["node", script, *argv]:
            _require_flags(argv, (ROOT / file).with_name(script).read_text())
        case ["npm", "install", *_]:
            assert (ROOT / file).with_name("package.json").exists()
        case ["make", target, *_]:
            makefile = (ROOT / "Makefile").read_text().replace("$(VENV)", ".venv")
            assert re.search(rf"^{re.escape(target)}:", makefile, re.MULTILINE)
        case ["source", script]:
            assert script == ".venv/bin/activate"
        case ["pip", "install", what]:
            extras = re.findall(r"[a-z0-9]+", what.removeprefix("."))
            text = (ROOT / "pyproject.toml").read_text()
            assert all(re.search(rf"^{extra} = ", text, re.MULTILINE) for extra in extras)
        case ["pip", "install", "--no-deps", *packages]:  # of an extra
            text = (ROOT / "pyproject.toml").read_text()
            assert all(f'"{package}' in text for package in packages)
        case words:
            pytest.fail(f"{file}: no test knows what {words[0]} is")


def _found(file: str, argv: list[str], own_files: Path) -> list[str]:
    """The configuration where a reader of the file finds it: also among those that it shows."""
    config = argv[0]
    if not config.endswith(".py"):
        return argv
    folder = ROOT / "docs" / "examples"
    places = [
        own_files / config,
        ROOT / config,
        ROOT / Path(file).parent / config,
        folder / "own_environment" / config,
    ]
    return [str(next(place for place in places if place.is_file())), *argv[1:]]


@functools.cache
def _help(*words: str) -> str:
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        main.main(list(words))
    return text.getvalue()


def _require_flags(argv: list[str], text: str) -> None:
    for word in argv:
        if word.startswith("--"):
            flag = word.split("=")[0].removeprefix("--")
            assert re.search(rf"\b{flag}\b|\b{flag.replace('-', '_')}\b", text), word
