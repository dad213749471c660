"""Arrays in a directory: trees by orbax, and large arrays without compression.

    state/shapes.json   shape and dtype of every array, by its path in the tree
          joined/       the elements of all arrays of a dtype, in that order, in few long arrays
          long/         in its place, if several processes share a run: written like `extra`
          orbax/        in their place, as it was written before: a flat dict from path to array
    extra/names.json    file and dtype of every array
          000.npy ...
          names-1.json  of what a second process has written: more rows of the same arrays
          1-000.npy ...

Orbax and tensorstore take a little memory for each array that they write, and never free it: hence
few long ones. Trees are stored flat, by path: what was saved and what is wanted can then be
compared name by name, and the structure (NamedTuples of an optimiser, for instance) is the
reader's.
"""

import json
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from seedrl.errors import CheckpointError
from seedrl.types import Tree

# Of one of the long arrays, which are compressed as a whole: 64 MiB of float32.
_MOST_ELEMENTS = 2**24


class _Shape(NamedTuple):
    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


def write_tree(root: Path, tree: Tree) -> None:
    """Writes a tree of numpy or JAX arrays or scalars into the new directory `root`.

    Raises OSError, or what tensorstore makes of one: ValueError or RuntimeError.
    """
    root.mkdir()
    arrays = {name: np.asarray(leaf) for name, leaf in _named(tree).items()}
    shapes = {name: _shape_of(array) for name, array in arrays.items()}
    (root / "shapes.json").write_text(json.dumps(shapes, indent=1))
    joined = _joined(arrays)
    if jax.process_count() > 1:
        # Orbax would have to be told by jax's service that the other processes do not take part.
        write_large(root / "long", joined)
    elif joined:
        # Not imported with this module: that takes a quarter of a second, in which a learner could
        # begin to act. It saves for the first time when it is long under way.
        import orbax.checkpoint as ocp

        with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
            checkpointer.save((root / "joined").absolute(), args=ocp.args.PyTreeSave(joined))


def read_tree(root: Path, abstract: Tree) -> Tree:
    """The tree in `root` as numpy arrays in the structure of `abstract`.

    Args:
      abstract: tree of arrays or `jax.ShapeDtypeStruct`. It may lack some of the top-level keys of
        what was written; below a key that it has, all must match.

    Raises CheckpointError that names each path whose presence, shape or dtype differs.
    """
    require_fit(root, abstract)
    wanted, stored = _shapes(root, abstract)
    if (root / "joined").is_dir() or (root / "long").is_dir():
        arrays = _read_joined(root, set(stored))
    else:
        arrays = _read_separate(root, stored)
    return jax.tree.unflatten(jax.tree.structure(abstract), [arrays[name] for name in wanted])


def require_fit(root: Path, abstract: Tree) -> None:
    """Raises the CheckpointError with which `read_tree` would refuse."""
    if differences := tree_difference(root, abstract):
        raise CheckpointError(
            f"{root} does not fit: {'; '.join(differences)}; "
            "start a new workdir or restore the config"
        )


def tree_difference(root: Path, abstract: Tree) -> list[str]:
    """One line per path that keeps `read_tree` from reading; empty if nothing does."""
    return _differences(*_shapes(root, abstract))


def stored_tree(root: Path) -> dict[str, jax.ShapeDtypeStruct]:
    """What `write_tree` wrote into `root`, as a flat tree that `read_tree` takes: all of it."""
    return {
        name: jax.ShapeDtypeStruct(spec.shape, np.dtype(spec.dtype))
        for name, spec in _stored_shapes(root).items()
    }


def write_large(root: Path, arrays: Mapping[str, np.ndarray], *, part: int = 0) -> list[Path]:
    """Writes arrays by name into `root`, which it makes; what files it has written.

    Several processes may each write a part: some rows of every array. Raises OSError.
    """
    root.mkdir(exist_ok=True)
    names = {}
    for position, (name, array) in enumerate(arrays.items()):
        names[name] = (f"{part}-" * (part > 0) + f"{position:03d}.npy", str(array.dtype))
        np.save(root / names[name][0], array, allow_pickle=False)
    (root / _names_of(part)).write_text(json.dumps(names, indent=1))
    return [root / _names_of(part), *(root / file for file, _ in names.values())]


def read_large(root: Path, *, prefix: str = "", rows: slice | None = None) -> dict[str, np.ndarray]:
    """The arrays in `root` whose names begin with `prefix`, by name: the rows of all parts.

    `rows`: reads no others.
    """
    parts = [_read_part(root, 0, prefix, rows)]
    while (root / _names_of(len(parts))).exists():
        parts.append(_read_part(root, len(parts), prefix, rows))
    if rows is None and len(parts) == 1:
        return parts[0]
    return {name: _rows_of([part[name] for part in parts], rows) for name in parts[0]}


def _names_of(part: int) -> str:
    return f"names-{part}.json" if part else "names.json"


def _read_part(root: Path, part: int, prefix: str, rows: slice | None) -> dict[str, np.ndarray]:
    # The .npy format does not know bfloat16 and gives two nameless bytes back: hence the dtype.
    mode: Literal["r"] | None = None if rows is None else "r"
    return {
        name: np.load(root / file, allow_pickle=False, mmap_mode=mode).view(np.dtype(dtype))
        for name, (file, dtype) in json.loads((root / _names_of(part)).read_bytes()).items()
        if name.startswith(prefix)
    }


def _rows_of(parts: Sequence[np.ndarray], rows: slice | None) -> np.ndarray:
    """The rows of all parts, one after another, or some of them."""
    first, kept = 0, []
    for part in parts:
        start, stop = (0, len(part)) if rows is None else (rows.start - first, rows.stop - first)
        kept.append(part[max(0, start) : max(0, stop)])
        first += len(part)
    return np.concatenate(kept)


def _shapes(root: Path, abstract: Tree) -> tuple[dict[str, _Shape], dict[str, _Shape]]:
    """What is wanted, and what is stored below the keys that are."""
    wanted = {name: _shape_of(leaf) for name, leaf in _named(abstract).items()}
    # One level of the tree: a key that holds nothing, such as `()`, is requested like the others.
    top, _ = jax.tree_util.tree_flatten_with_path(
        abstract, is_leaf=lambda node: node is not abstract
    )
    keys = [_path_name(path) for path, _ in top]
    stored = {
        name: spec
        for name, spec in _stored_shapes(root).items()
        if any(name == key or name.startswith(f"{key}/") for key in keys)
    }
    return wanted, stored


def _stored_shapes(root: Path) -> dict[str, _Shape]:
    shapes = json.loads((root / "shapes.json").read_bytes())
    return {name: _Shape(dtype, tuple(shape)) for name, (dtype, shape) in shapes.items()}


def _joined(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The elements of all arrays, by dtype, in long arrays `[<= _MOST_ELEMENTS]`."""
    parts: dict[str, list[np.ndarray]] = {}
    for array in arrays.values():
        parts.setdefault(str(array.dtype), []).append(array.reshape(-1))
    elements = {dtype: np.concatenate(each) for dtype, each in parts.items()}
    return {
        name: elements[dtype][start : start + _MOST_ELEMENTS]
        for dtype, each in elements.items()
        for start, name in _pieces(dtype, each.size).items()
    }


def _pieces(dtype: str, num_elements: int) -> dict[int, str]:
    """Names of the long arrays, by the first element of each; none for those without elements."""
    return {start: f"{dtype} {start}" for start in range(0, num_elements, _MOST_ELEMENTS)}


def _read_joined(root: Path, wanted: Collection[str]) -> dict[str, np.ndarray]:
    shapes = _stored_shapes(root)
    sizes = Counter[str]()
    for spec in shapes.values():
        sizes[spec.dtype] += math.prod(spec.shape)
    lengths = {
        name: np.zeros(min(size - start, _MOST_ELEMENTS), np.dtype(dtype))
        for dtype, size in sizes.items()
        for start, name in _pieces(dtype, size).items()
    }
    if (root / "long").is_dir():
        restored = read_large(root / "long")
    else:
        restored = _restored(root / "joined", lengths) if lengths else {}
    found, ends = {}, Counter[str]()
    for name, (dtype, shape) in shapes.items():
        start = ends[dtype]
        ends[dtype] = end = start + math.prod(shape)
        if name in wanted:
            found[name] = _taken(restored, dtype, start, end).reshape(shape)
    return found


def _taken(joined: Mapping[str, np.ndarray], dtype: str, start: int, end: int) -> np.ndarray:
    """A copy of the elements from `start` to `end`, which lie in one of the long arrays or more."""
    parts = [
        joined[name][max(start - first, 0) : max(end - first, 0)]
        for first, name in _pieces(dtype, end).items()
    ]
    return np.concatenate(parts) if parts else np.zeros(0, np.dtype(dtype))


def _read_separate(root: Path, stored: Mapping[str, _Shape]) -> dict[str, np.ndarray]:
    arrays = {name: np.zeros(spec.shape, np.dtype(spec.dtype)) for name, spec in stored.items()}
    # Orbax refuses arrays without elements; their shapes say all that there is to say of them.
    if filled := {name: array for name, array in arrays.items() if array.size}:
        arrays.update(_restored(root / "orbax", filled))
    return arrays


def _checkpointer() -> Any:
    """Orbax's; of several processes each reads by itself, and waits for no other."""
    import orbax.checkpoint as ocp

    if jax.process_count() == 1:
        return ocp.Checkpointer(ocp.PyTreeCheckpointHandler())
    own = jax.process_index()
    alone = ocp.options.MultiprocessingOptions(primary_host=own, active_processes={own})
    handler = ocp.PyTreeCheckpointHandler(multiprocessing_options=alone)
    return ocp.Checkpointer(handler, multiprocessing_options=alone)


def _restored(path: Path, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What orbax has written under these names, which must be as `arrays` are."""
    import orbax.checkpoint as ocp

    arguments = ocp.args.PyTreeRestore(
        item=dict(arrays),
        restore_args={name: ocp.RestoreArgs(restore_type=np.ndarray) for name in arrays},
        partial_restore=True,
    )
    with _checkpointer() as checkpointer:
        return dict(checkpointer.restore(path.absolute(), args=arguments))


def _differences(wanted: Mapping[str, _Shape], stored: Mapping[str, _Shape]) -> list[str]:
    return [
        f"{name}: expected {wanted.get(name, 'nothing')}, "
        f"checkpoint has {stored.get(name, 'nothing')}"
        for name in [*wanted, *(name for name in stored if name not in wanted)]
        if wanted.get(name) != stored.get(name)
    ]


def _named(tree: Tree) -> dict[str, Any]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    named = {_path_name(path): leaf for path, leaf in leaves}
    assert len(named) == len(leaves), "two paths of the tree have one name"
    return named


def _path_name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")


def _shape_of(leaf: Any) -> _Shape:
    array = leaf if hasattr(leaf, "dtype") else np.asarray(leaf)
    return _Shape(str(array.dtype), tuple(int(size) for size in array.shape))
