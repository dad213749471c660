"""No import circles.

The layers themselves are contracts of the import linter. It does not see circles inside a layer,
nor imports that serve type checkers alone; here they count: a file that cannot be explained without
another, which cannot be explained without the first, is one file.
"""

import ast
import functools
from collections.abc import Iterable, Mapping, Set
from pathlib import Path
from typing import TypeVar

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("seedrl", "envs_server", "learner")

Node = TypeVar("Node", Path, str)


def sources() -> list[Path]:
    """The product's modules, relative to the root, without generated ones."""
    return [
        path.relative_to(ROOT)
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        if "_pb2" not in path.name
    ]


def imports(paths: Iterable[Path]) -> dict[Path, set[Path]]:
    """Which of the modules each of them imports, wherever in the file the statement stands.

    A package's `__init__` holds a docstring only, so nothing depends on it.
    """
    modules = {".".join(path.with_suffix("").parts): path for path in paths}
    return {path: _imported(ROOT / path, modules) - {path} for path in modules.values()}


def _imported(path: Path, modules: Mapping[str, Path]) -> set[Path]:
    names = []
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            # What is imported may be a module of the package, or a name in the module.
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return {modules[name] for name in names if name in modules}


@functools.cache
def product_imports() -> dict[Path, set[Path]]:
    """Of all sources."""
    return imports(sources())


def between_folders(graph: Mapping[Path, Set[Path]]) -> dict[Path, set[Path]]:
    """Which folders each folder imports from, but those that lie in it or that it lies in."""
    folders: dict[Path, set[Path]] = {}
    for path, targets in graph.items():
        here = path.parent
        others = {target.parent for target in targets}
        folders.setdefault(here, set()).update(
            other
            for other in others
            if not (other.is_relative_to(here) or here.is_relative_to(other))
        )
    return folders


def on_circles(graph: Mapping[Node, Set[Node]]) -> set[Node]:
    """The nodes from which a way leads back to them."""
    return {node for node in graph if node in _reachable(graph, node)}


def _reachable(graph: Mapping[Node, Set[Node]], start: Node) -> set[Node]:
    found: set[Node] = set()
    ahead = set(graph[start])
    while ahead:
        node = ahead.pop()
        found.add(node)
        ahead |= graph.get(node, set()) - found
    return found


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": set()}, set()),
        ({"a": {"b"}, "b": {"c"}, "c": {"b"}}, {"b", "c"}),
        ({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}, {"a", "b", "c"}),
    ],
)
def test_the_search_finds_circles(graph: dict[str, set[str]], expected: set[str]) -> None:
    assert on_circles(graph) == expected


def test_no_folder_depends_on_one_that_depends_on_it() -> None:
    assert on_circles(between_folders(product_imports())) == set()


def test_no_file_depends_on_one_that_depends_on_it() -> None:
    assert on_circles(product_imports()) == set()
