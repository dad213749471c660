"""Every command in README.md and docs: its configuration is valid, and its flags exist."""

import contextlib
import io
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from envs_server.conformance.options import read_options as read_check_options
from envs_server.options import read_options
from envs_server.server_conformance.options import read_options as read_server_check_options
from learner.cli import learner, main, train
from learner.cli.arguments import parse
from seedrl.config_checks import check

ROOT = Path(__file__).parents[1]


def _commands() -> Iterator[tuple[Path, str]]:
    """Files and commands of all `sh` blocks, variables replaced and comments cut."""
    for path in sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]):
        if "node_modules" in path.parts:
            continue
        for block in re.findall(r"```sh\n(.*?)```", path.read_text(), re.DOTALL):
            variables: dict[str, str] = {}
            for line in block.replace("\\\n", " ").splitlines():
                words = re.sub(r"\s#.*", "", line).removesuffix("&").strip()
                for name, value in variables.items():
                    words = words.replace(f"${name}", value)
                if assigned := re.fullmatch(r'([A-Z]+)="(.*)"', words):
                    variables[assigned[1]] = assigned[2]
                elif words:
                    yield path, words


COMMANDS = sorted({(str(path.relative_to(ROOT)), words) for path, words in _commands()})


@pytest.mark.parametrize(("file", "command"), COMMANDS)
def test_a_documented_command_is_understood(file: str, command: str) -> None:
    match shlex.split(command):
        case ["seedrl", "train", *argv]:
            options, config = parse(train.TrainOptions, _found(file, argv), prog="seedrl train")
            check(options.apply(config))
        case ["python", "-m", "learner", *argv]:
            # What serves other machines must be asked for: --bind is part of the check.
            served, config = parse(learner.LearnerOptions, _found(file, argv), prog="learner")
            check(served.apply(config))
        case ["python", "-m", "envs_server", *argv]:
            read_options(argv)
        case ["seedrl", "check-env", *argv]:  # these two become another program
            read_check_options(argv)
        case ["seedrl", "check-env-server", *argv]:
            read_server_check_options(argv)
        case ["seedrl", name, *argv]:
            _require_flags(argv, _help(lambda: main.main([name, "--help"])))
        case ["python", "-m", module, *argv]:
            source = Path(ROOT, *module.split("."))
            source = source / "__main__.py" if source.is_dir() else source.with_suffix(".py")
            _require_flags(argv, source.read_text() + _help(lambda: main.main(["bench", "--help"])))
        case ["node", script, *argv]:
            _require_flags(argv, (ROOT / file).with_name(script).read_text())
        case ["npm", "install", *_]:
            assert (ROOT / file).with_name("package.json").exists()
        case ["make", target, *_]:
            makefile = (ROOT / "Makefile").read_text()
            assert re.search(rf"^{target}:", makefile, re.MULTILINE)
        case ["pip", "install", what]:
            extras = re.findall(r"[a-z0-9]+", what.removeprefix("."))
            text = (ROOT / "pyproject.toml").read_text()
            assert all(re.search(rf"^{extra} = ", text, re.MULTILINE) for extra in extras)
        case words:
            pytest.fail(f"{file}: no test knows what {words[0]} is")


def _found(file: str, argv: list[str]) -> list[str]:
    """The configuration where a reader of the file finds it, or one of the same form."""
    config = argv[0]
    if not config.endswith(".py"):
        return argv
    folder = ROOT / "docs" / "examples"
    places = [ROOT / config, ROOT / Path(file).parent / config, folder / "own_environment" / config]
    return [str(next(place for place in places if place.is_file())), *argv[1:]]


def _help(show: Callable[[], object]) -> str:
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        show()
    return text.getvalue()


def _require_flags(argv: list[str], text: str) -> None:
    for word in argv:
        if word.startswith("--"):
            flag = word.split("=")[0].removeprefix("--")
            assert re.search(rf"\b{flag}\b|\b{flag.replace('-', '_')}\b", text), word
