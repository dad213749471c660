"""Shapes and dtypes that a user's own functions must give, whether as arrays or while traced."""

from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from seedrl.errors import ConfigError
from seedrl.types import Tree

# The first of each is what a message asks for.
FLOATS = ("float32", "bfloat16", "float16", "float64")
NUMBERS = (*FLOATS, "int32", "uint32")
# They become float32 before they are averaged over devices.
METRICS = (*NUMBERS, "bool", "int8", "uint8", "int16", "uint16", "int64", "uint64")
_LONGEST = 120


def shown(tree: Tree) -> str:
    """A tree in a message: `float32[2, 3]` for an array, the class for what is none."""
    if _is_array(tree):
        return _array(tree)
    leaves = jax.tree.leaves(tree)
    if not leaves:
        return repr(tree) if tree in ((), None) else f"an empty {type(tree).__name__}"
    if len(leaves) == 1 and leaves[0] is tree:
        return f"a {type(tree).__name__}"
    parts = ", ".join(_array(leaf) if _is_array(leaf) else type(leaf).__name__ for leaf in leaves)
    text = f"{type(tree).__name__}({parts})"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def require_array(
    what: str, value: Any, shape: Sequence[int], dtypes: Iterable[str], advice: str
) -> None:
    """Raises ConfigError unless `value` is an array of this shape and one of these dtypes.

    Of the dtypes the first is the one that the message asks for. What is on the host yet is judged
    by its kind: its width is what jax makes of it, and another one with JAX_ENABLE_X64.
    """
    dtypes = tuple(dtypes)
    has_shape = _is_array(value) and np.shape(value) == tuple(shape)
    if not (has_shape and not {_dtype(value), _narrow(value)}.isdisjoint(dtypes)):
        expected = f"{dtypes[0]}{list(shape)}"
        raise ConfigError(f"{what}: expected {expected}, got {shown(value)}; {advice}")


def require_arrays(what: str, tree: Tree) -> None:
    """Raises ConfigError unless all leaves of a tree are arrays or numbers."""
    for path, leaf in _leaves(tree).items():
        if not _is_array(leaf):
            raise ConfigError(f"{what}{path}: expected an array, got a {type(leaf).__name__}")


def require_rows(what: str, tree: Tree, num_rows: int) -> None:
    """Raises ConfigError unless all leaves of a tree are `[num_rows, ...]`."""
    require_arrays(what, tree)
    for path, leaf in _leaves(tree).items():
        if np.shape(leaf)[:1] != (num_rows,):
            raise ConfigError(
                f"{what}{path}: expected [{num_rows}, ...], one row for each of a batch of "
                f"{num_rows}, got {_array(leaf)}"
            )


def require_same(what: str, expected: Tree, got: Tree, advice: str) -> None:
    """Raises ConfigError unless a tree has the structure, shapes and dtypes of another one."""
    left, right = _leaves(expected), _leaves(got)
    for path in [*left, *(path for path in right if path not in left)]:
        one, other = _of(left, path), _of(right, path)
        if one != other:
            raise ConfigError(f"{what}{path}: expected {one}, got {other}; {advice}")
    # As jax compares them: the text of a structure may hold addresses of what is equal.
    structures: list[Any] = [jax.tree.structure(tree) for tree in (expected, got)]
    if structures[0] != structures[1]:
        one, other = (str(structure)[:_LONGEST] for structure in structures)
        raise ConfigError(f"{what}: expected {one}, got {other}; {advice}")


def _of(leaves: dict[str, Any], path: str) -> str:
    return shown(leaves[path]) if path in leaves else "nothing"


def _leaves(tree: Tree) -> dict[str, Any]:
    found = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path): leaf for path, leaf in found}


def _is_array(value: Any) -> bool:
    if isinstance(value, np.ndarray | np.generic):
        return value.dtype.kind not in "OSUMm"  # objects, texts and times
    return isinstance(value, jax.Array | float | int | complex)


def _dtype(value: Any) -> str:
    # What jax makes of it: numpy's float64 is float32 here, and so is a Python float.
    return str(value.dtype if isinstance(value, jax.Array) else jnp.result_type(value))


def _narrow(value: Any) -> str:
    if isinstance(value, jax.Array):
        return str(value.dtype)
    dtype = str(np.result_type(value))
    return dtype.replace("64", "32") if dtype in ("float64", "int64", "uint64") else dtype


def _array(value: Any) -> str:
    return f"{_dtype(value)}{list(np.shape(value))}"
