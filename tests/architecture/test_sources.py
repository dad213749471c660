"""What no file of the repository may contain."""

import ast
import functools
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("seedrl", "envs_server", "learner")

# What turns bytes from elsewhere into running code.
UNSAFE_MODULES = {
    "cloudpickle",
    "dill",
    "imp",
    "joblib",
    "jsonpickle",
    "marshal",
    "pickle",
    "shelve",
}
UNSAFE_NAMES = {"eval", "exec", "compile", "__import__", "execfile"}
UNSAFE_ATTRIBUTES = {
    *(("yaml", "load"), ("yaml", "unsafe_load"), ("yaml", "full_load")),
    *(("os", "system"), ("os", "popen"), ("os", "startfile"), ("pty", "spawn")),
    *(("subprocess", "getoutput"), ("subprocess", "getstatusoutput")),
    *(("asyncio", "create_subprocess_shell"), ("torch", "load"), ("builtins", "eval")),
    *(("builtins", "exec"), ("code", "interact"), ("runpy", "run_path")),
}

# Assembled from parts, so that this file does not contain what it looks for.
REGISTRIES = ("pypi" + ".org", "python" + "hosted", "pytorch" + ".org/whl", "anaconda" + ".org")
OPTIONS = ("index-url", "extra-index-url", "find-links", "trusted-host")
# The user of the container images has a home; nobody else's is known.
MACHINE_PATH = re.compile(
    r"(?<![\w./$}])/(?:work|root|home/(?!seedrl\b)\w+|Users/\w+|opt/pypi|tmp/v\d+)\b"
)


def files() -> list[Path]:
    """Files under version control, and those that are about to be."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if listing.returncode != 0:
        pytest.skip("not a git checkout: what belongs to the repository is unknown")
    return [ROOT / name for name in listing.stdout.split("\0") if name and (ROOT / name).is_file()]


def python_files() -> list[Path]:
    return [path for path in files() if path.suffix == ".py"]


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def in_packages(path: Path) -> bool:
    return path.relative_to(ROOT).parts[0] in PACKAGES


def unsafe_uses(tree: ast.AST) -> list[str]:
    """Every import or call in `tree` that could run code it was sent, as `line: what`."""
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                used = {alias.name.split(".")[0] for alias in names} & UNSAFE_MODULES
            case ast.ImportFrom(module=str(module), names=names):
                used = {module.split(".")[0]} & UNSAFE_MODULES
                pairs = {(module, alias.name) for alias in names} & UNSAFE_ATTRIBUTES
                used |= {f"{owner}.{name}" for owner, name in pairs}
            case ast.Call(func=ast.Name(id=name)):
                used = {name} & UNSAFE_NAMES
            case ast.Attribute(value=ast.Name(id=owner), attr=name):
                used = {f"{owner}.{name}"} if (owner, name) in UNSAFE_ATTRIBUTES else set()
            case ast.keyword(arg="allow_pickle" | "shell", value=ast.Constant(value=False)):
                used = set()
            case ast.keyword(arg="allow_pickle" | "shell"):
                used = {str(node.arg)}
            case _:
                used = set()
        found += [f"line {getattr(node, 'lineno', '?')}: {name}" for name in sorted(used)]
    return found


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from dill import loads",
        "def f():\n    import cloudpickle.cloudpickle",
        "eval('1')",
        "yaml.load(text)",
        "np.load(path, allow_pickle=whatever)",
        "from os import system",
        "subprocess.run(line, shell=True)",
    ],
)
def test_the_search_finds_unsafe_code(code: str) -> None:
    assert len(unsafe_uses(ast.parse(code))) == 1


def test_packages_never_run_what_they_were_sent() -> None:
    found = {
        str(path.relative_to(ROOT)): uses
        for path in python_files()
        if in_packages(path) and (uses := unsafe_uses(parsed(path)))
    }
    assert found == {}


# Where time passes that something depends on. The rest writes down when things were.
_TIMED = (
    "envs_server",
    "seedrl",
    *(f"learner/{name}" for name in ("acting", "launch", "learning", "serving", "threads")),
)


def wall_clocks(tree: ast.AST) -> list[str]:
    """Every use of a clock that somebody can set."""
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="time"), attr="time" | "time_ns" as name):
                found.append(f"line {node.lineno}: time.{name}")
            case ast.ImportFrom(module="time", names=names):
                taken = [alias.name for alias in names if alias.name in ("time", "time_ns")]
                found += [f"line {node.lineno}: from time import {name}" for name in taken]
            case ast.Import(names=names) if any(alias.name == "datetime" for alias in names):
                found.append(f"line {node.lineno}: datetime")
    return found


def test_a_clock_that_can_be_set_decides_on_nothing() -> None:
    found = {
        str(path.relative_to(ROOT)): uses
        for path in python_files()
        if str(path.relative_to(ROOT)).startswith(tuple(f"{folder}/" for folder in _TIMED))
        and (uses := wall_clocks(parsed(path)))
    }
    assert found == {}


def forbidden_text(line: str) -> str | None:
    """The registry address, index option or path of one machine that `line` contains, if any."""
    for text in (*REGISTRIES, *(f"--{option}" for option in OPTIONS)):
        if text in line:
            return text
    match = MACHINE_PATH.search(line)
    return match.group() if match else None


@pytest.mark.parametrize(
    "line",
    [
        "see " + "/wo" + "rk/shared/x.md",
        'path = "' + "/ro" + 'ot/.cache"',
        "https://pypi" + ".org/simple",
        "pip install --" + "index-url X",
    ],
)
def test_the_search_finds_machine_paths_and_registries(line: str) -> None:
    assert forbidden_text(line)


def test_no_file_names_a_registry_or_a_path_of_one_machine() -> None:
    found = []
    for path in files():
        try:
            lines = path.read_text().splitlines()
        except UnicodeDecodeError:
            continue
        found += [
            f"{path.relative_to(ROOT)}:{number}: {text}"
            for number, line in enumerate(lines, 1)
            if (text := forbidden_text(line))
        ]
    assert found == []
