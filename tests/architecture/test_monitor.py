"""Serving has one lock, and one class takes it: `learner.serving.hub.Hub`."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
HUB = ROOT / "learner" / "serving" / "hub.py"
LOCK = "_changed"
CONSTANT = {"environment", "clock"}


def _hub() -> ast.ClassDef:
    (found,) = (
        node
        for node in ast.parse(HUB.read_text()).body
        if isinstance(node, ast.ClassDef) and node.name == "Hub"
    )
    return found


def _methods() -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in _hub().body if isinstance(node, ast.FunctionDef)}


def _own(node: ast.AST) -> str | None:
    """The name of an attribute of `self`."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return node.attr if node.value.id == "self" else None
    return None


def _unlocked(node: ast.AST) -> list[str]:
    """Attributes of `self` that are used outside of `with self._changed`."""
    if isinstance(node, ast.With) and any(_own(i.context_expr) == LOCK for i in node.items):
        return []
    own = _own(node)
    found = [own] if own is not None else []
    return found + [name for child in ast.iter_child_nodes(node) for name in _unlocked(child)]


def test_every_public_method_of_the_hub_takes_the_lock_for_all_that_changes() -> None:
    broken = {
        name: sorted(used)
        for name, method in _methods().items()
        if not name.startswith("_") and (used := set(_unlocked(method)) - CONSTANT)
    }
    assert broken == {}


def test_private_methods_of_the_hub_are_called_by_the_hub_alone() -> None:
    private = {name for name in _methods() if name.startswith("_") and name != "__init__"}
    assert private  # those that need the lock
    calls = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "learner").rglob("*.py")
        if path != HUB
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and node.attr in private
        and isinstance(node.value, ast.Name | ast.Attribute)
        and "hub" in ast.unparse(node.value)
    }
    assert calls == set()


def test_nobody_but_the_hub_touches_its_lock_or_its_core() -> None:
    guarded = {
        own
        for node in ast.walk(_methods()["__init__"])
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if (own := _own(target)) is not None and own not in CONSTANT
    }
    assert {LOCK, "_serving"} <= guarded
    touched = {
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in (ROOT / "learner").rglob("*.py")
        if path != HUB
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and node.attr in guarded
        and "hub" in ast.unparse(node.value)
    }
    assert touched == set()


def test_serving_has_no_other_lock() -> None:
    names = {"Lock", "RLock", "Condition", "Semaphore"}
    with_locks = {
        path.name
        for path in HUB.parent.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and ast.unparse(node) in {f"threading.{n}" for n in names}
    }
    assert with_locks == {"hub.py"}
