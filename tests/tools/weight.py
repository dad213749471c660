"""Counts the weight of the tree beside its budgets: `python -m tests.tools.weight`.

A table for people, never a test. Budgets are of *.py without generated stubs.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
_GENERATED = re.compile(r"_pb2(_grpc)?\.py$")
# A test that quotes a sentence of a message.
_SENTENCE = re.compile(r"match=")
_TIME = re.compile(r"^_?[A-Z][A-Z0-9_]*_SECONDS\b", re.MULTILINE)


def files(folder: str) -> list[Path]:
    """The Python files of a package, without generated ones."""
    found = sorted((ROOT / folder).rglob("*.py"))
    return [path for path in found if not _GENERATED.search(path.name)]


def num_lines(folder: str) -> int:
    """Lines of a package."""
    return sum(len(path.read_text().splitlines()) for path in files(folder))


def comments(folder: str) -> float:
    """Comments per 100 lines."""
    texts = [path.read_text() for path in files(folder)]
    found = sum(len(re.findall(r"(?:^|\s)# ", text)) for text in texts)
    return 100 * found / max(1, sum(len(text.splitlines()) for text in texts))


def num_classes(folder: str) -> int:
    """Classes of a package."""
    trees = (ast.parse(path.read_text()) for path in files(folder))
    return sum(isinstance(node, ast.ClassDef) for tree in trees for node in ast.walk(tree))


def tests_of_sentences() -> int:
    """Test functions whose body compares an exception's text by `match=`."""
    return sum(bool(_SENTENCE.search(text)) for text in _test_functions())


def _test_functions() -> Iterator[str]:
    for path in files("tests"):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                yield ast.get_source_segment(text, node) or ""


def num_time_constants() -> int:
    """Named time constants of the product."""
    texts = (path.read_text() for folder in _PRODUCT for path in files(folder))
    return sum(len(_TIME.findall(text)) for text in texts)


def num_exit_codes() -> int:
    """Members of ExitCode."""
    tree = ast.parse((ROOT / "seedrl" / "exit_codes.py").read_text())
    (kind,) = (node for node in tree.body if isinstance(node, ast.ClassDef))
    return sum(isinstance(node, ast.Assign) for node in kind.body)


# Loads what an env server does that steps a gymnasium environment.
_SERVING = """
import sys
from envs_server import __main__, client, options
from envs_server.build import build, read_recipe
from envs_server.groups import EnvGroup
from seedrl.wire.seedrl_pb2 import Environment
recipe = read_recipe(Environment(id="CartPole-v1"), ())
EnvGroup(0, build(recipe, "sync", 2), [1, 2]).first()
print(*(module.__file__ for name, module in sys.modules.items() if name.startswith("PACKAGE.")))
"""


def num_loaded(package: str) -> int:
    """Lines of a package that are loaded in an env server of a gymnasium environment."""
    command = [sys.executable, "-c", _SERVING.replace("PACKAGE", package)]
    found = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    paths = [Path(name) for name in found.stdout.split() if name.endswith(".py")]
    return sum(
        len(path.read_text().splitlines()) for path in paths if not _GENERATED.search(path.name)
    )


_PRODUCT = ("seedrl", "envs_server", "learner")


def rows() -> Iterator[tuple[str, int, int]]:
    """Name, budget and present figure."""
    yield "seedrl, lines", 9_000, num_lines("seedrl")
    yield "envs_server, lines", 3_300, num_lines("envs_server")
    loaded = num_loaded("envs_server")
    yield "envs_server, lines loaded to serve", 1_300, loaded
    yield "the same, with seedrl's", 3_000, loaded + num_loaded("seedrl")
    yield "learner, lines", 16_000, num_lines("learner")
    yield "learner, files", 120, len(files("learner"))
    yield "learner, classes", 170, num_classes("learner")
    yield "configs, lines", 900, num_lines("configs")
    yield "tests, lines", 38_000, num_lines("tests")
    yield "tests that quote a sentence (match=)", 60, tests_of_sentences()
    yield "named time constants", 40, num_time_constants()
    yield "exit codes", 8, num_exit_codes()


def main() -> int:
    """Prints the table."""
    print(f"{'':40} {'budget':>8} {'now':>8}")
    for name, budget, now in rows():
        print(f"{name:40} {budget:8,} {now:8,}{'  over' if now > budget else ''}")
    for folder in _PRODUCT:
        print(f"{folder + ', comments per 100 lines':40} {8:8} {comments(folder):8.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
