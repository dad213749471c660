"""The directions of imports, guarded twice: by the linter and by a fresh interpreter.

The linter reads import statements without running them and does not see what a package's own
`__init__` or an installed plug-in pulls in; the interpreter sees exactly that.
"""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("seedrl", "envs_server", "learner")

JAX = ("jax", "jaxlib", "flax", "optax", "chex", "orbax")
HEAVY = (*JAX, "learner", "seedrl.agents", "seedrl.rl", "ale_py", "pygame", "scipy")


def sources() -> Iterator[Path]:
    for package in PACKAGES:
        yield from sorted((ROOT / package).rglob("*.py"))


def imported_modules(path: Path) -> set[str]:
    """Names of the modules that a file imports, wherever in the file the statement stands."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
    return names


def test_import_contracts_are_kept() -> None:
    # In a process of its own: the linter binds the output stream that pytest is about to replace.
    linter = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports())"
    child = subprocess.run(
        [sys.executable, "-c", linter],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert child.returncode == 0, child.stdout + child.stderr


def loaded_modules(*modules: str) -> set[str]:
    """What `sys.modules` holds in a fresh interpreter after importing `modules`.

    What none of them may load is asked of all at once: each alone loads no more.
    """
    code = f"import sys, {', '.join(modules)}\nprint(*sys.modules, sep='\\n')"
    child = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert child.returncode == 0, child.stderr
    loaded = set(child.stdout.split())
    assert set(modules) <= loaded
    return loaded


def test_an_env_server_and_what_it_shares_load_nothing_heavy() -> None:
    loaded = loaded_modules(
        "seedrl.types",
        "seedrl.specs",
        "seedrl.wire.seedrl_pb2",
        "envs_server.__main__",
        "envs_server.client",
        "envs_server.check.__main__",
    )
    assert {name for name in HEAVY if name in loaded} == set()


def test_serving_loads_no_jax() -> None:
    loaded = loaded_modules("learner.serving.server")
    assert {
        name for name in (*JAX, "learner.acting", "learner.learning") if name in loaded
    } == set()


def test_only_networks_import_flax() -> None:
    importers = {
        str(path.relative_to(ROOT))
        for path in sources()
        if any(name.split(".")[0] == "flax" for name in imported_modules(path))
    }
    assert {path for path in importers if not path.startswith("seedrl/networks/")} == set()


@pytest.mark.parametrize("package", PACKAGES)
def test_init_files_hold_only_a_docstring(package: str) -> None:
    for path in (ROOT / package).rglob("__init__.py"):
        tree = ast.parse(path.read_text(), str(path))
        assert ast.get_docstring(tree), f"{path} has no docstring"
        assert len(tree.body) == 1, f"{path} holds more than a docstring"
