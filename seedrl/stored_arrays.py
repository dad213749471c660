"""The arrays of a checkpoint: trees by orbax, and large arrays as .npy files.

    params/    parameters, by orbax: a flat dict from path to array
    state/     the rest of the saved tree, likewise; if several processes share a run, both of these
               are written like `extra`
    extra/names.json    file and dtype of every large array
          000.npy ...
          names-1.json  of what a second process has written: more rows of the same arrays
          1-000.npy ...

Trees are stored flat, by path: what was saved and what is wanted are compared name by name, and the
structure (NamedTuples of an optimiser, for instance) is the reader's. A checkpoint may come from
anybody: shapes are compared with those that its files have before an array is read.
"""

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from seedrl.errors import CheckpointError, in_one_line
from seedrl.run_files import read_regular
from seedrl.types import Tree

_ITEMS = ("params", "state")


class _Shape(NamedTuple):
    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"

    @property
    def num_elements(self) -> int:
        return math.prod(self.shape)

    @property
    def num_bytes(self) -> int:
        return self.num_elements * np.dtype(self.dtype).itemsize


def write_tree(root: Path, tree: Mapping[str, Tree]) -> None:
    """Writes trees of numpy or JAX arrays or scalars by name, `params` and others, below `root`.

    Raises OSError, or what tensorstore makes of one: ValueError or RuntimeError.
    """
    arrays = {name: np.asarray(leaf) for name, leaf in _named(tree).items()}
    for item in _ITEMS:
        # Orbax refuses arrays without elements; their shapes say all that there is to say of them.
        filled = {n: array for n, array in arrays.items() if _item_of(n) == item and array.size}
        if filled:
            _write_item(root / item, filled)


def read_tree(root: Path, abstract: Mapping[str, Tree]) -> dict[str, Any]:
    """The trees in `root` as numpy arrays in the structure of `abstract`.

    Args:
      abstract: trees of arrays or `jax.ShapeDtypeStruct` by name; some of the names that were
        written may be left out, and are not read then.

    Raises CheckpointError that names each path whose presence, shape or dtype differs.
    """
    require_fit(root, abstract)
    wanted = {name: _shape_of(leaf) for name, leaf in _named(abstract).items()}
    arrays = _read(root, wanted)
    leaves = [arrays[name] for name in wanted]
    restored: dict[str, Any] = jax.tree.unflatten(jax.tree.structure(dict(abstract)), leaves)
    return restored


def read_all(root: Path) -> dict[str, np.ndarray]:
    """All arrays of the trees in `root`, by their paths. Raises CheckpointError."""
    return _read(root, _stored(root, _ITEMS))


def require_fit(root: Path, abstract: Mapping[str, Tree]) -> None:
    """Raises the CheckpointError with which `read_tree` would refuse."""
    if differences := tree_difference(root, abstract):
        raise CheckpointError(
            f"{root} does not fit: {'; '.join(differences)}; "
            "start a new workdir or restore the config"
        )


def tree_difference(root: Path, abstract: Mapping[str, Tree]) -> list[str]:
    """One line per path that keeps `read_tree` from reading; empty if nothing does."""
    wanted = {name: _shape_of(leaf) for name, leaf in _named(abstract).items()}
    wanted = {name: shape for name, shape in wanted.items() if shape.num_elements}
    stored = {
        name: shape
        for name, shape in _stored(root, sorted({_item_of(name) for name in abstract})).items()
        if name.split("/")[0] in abstract
    }
    return [
        f"{name}: expected {wanted.get(name, 'nothing')}, "
        f"checkpoint has {stored.get(name, 'nothing')}"
        for name in [*wanted, *(name for name in stored if name not in wanted)]
        if wanted.get(name) != stored.get(name)
    ]


def write_large(root: Path, arrays: Mapping[str, np.ndarray], *, part: int = 0) -> list[Path]:
    """Writes arrays by name into `root`; what files it has written. Raises OSError.

    Several processes may each write a part: some rows of every array.
    """
    names = {}
    for position, (name, array) in enumerate(arrays.items()):
        names[name] = (f"{part}-" * (part > 0) + f"{position:03d}.npy", str(array.dtype))
        np.save(root / names[name][0], array, allow_pickle=False)
    (root / _names_of(part)).write_text(json.dumps(names, indent=1))
    return [root / _names_of(part), *(root / file for file, _ in names.values())]


def read_large(root: Path, *, prefix: str = "", rows: slice | None = None) -> dict[str, np.ndarray]:
    """The arrays in `root` whose names begin with `prefix`, by name: the rows of all parts.

    `rows`: only these of each. Raises CheckpointError.
    """
    try:
        parts = [_read_part(root, 0, prefix)]
        while (root / _names_of(len(parts))).exists():
            parts.append(_read_part(root, len(parts), prefix))
        if rows is None and len(parts) == 1:
            return {name: np.array(array) for name, array in parts[0].items()}
        return {name: _rows_of([part[name] for part in parts], rows) for name in parts[0]}
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise CheckpointError(f"cannot read {root}: {in_one_line(error)}") from error


def _item_of(name: str) -> str:
    return "params" if name.split("/")[0] == "params" else "state"


def _named(tree: Mapping[str, Tree]) -> dict[str, Any]:
    """The leaves by their paths."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(dict(tree))
    named = {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}
    assert len(named) == len(leaves), "two paths of the tree have one name"
    return named


def _shape_of(leaf: Any) -> _Shape:
    array = leaf if hasattr(leaf, "dtype") else np.asarray(leaf)
    return _Shape(str(array.dtype), tuple(int(size) for size in array.shape))


def _alone() -> Any:
    """Of several processes each reads by itself, and waits for no other."""
    import orbax.checkpoint as ocp

    if jax.process_count() == 1:
        return ocp.options.MultiprocessingOptions()
    own = jax.process_index()
    return ocp.options.MultiprocessingOptions(primary_host=own, active_processes={own})


def _write_item(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    if jax.process_count() > 1:
        # Orbax would wait for the others through a service that these processes do not share.
        path.mkdir()
        write_large(path, arrays)
        return
    # Not imported with this module: that takes a third of a second, in which a learner could begin
    # to act. It saves for the first time when it is long under way.
    import orbax.checkpoint as ocp

    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
        checkpointer.save(path.absolute(), args=ocp.args.PyTreeSave(dict(arrays)))


def _stored(root: Path, items: Sequence[str]) -> dict[str, _Shape]:
    """Shapes and dtypes of the arrays in some items of a checkpoint, as their files have them."""
    import orbax.checkpoint as ocp

    found: dict[str, _Shape] = {}
    for item in items:
        if (root / item / _names_of(0)).exists():
            for name, array in _read_part(root / item, 0, "").items():
                found[name] = _shape_of(array)
            continue
        if not (root / item).is_dir():
            continue
        try:
            handler = ocp.PyTreeCheckpointHandler(multiprocessing_options=_alone())
            for name, array in dict(handler.metadata((root / item).absolute()).tree).items():
                found[name] = _Shape(str(np.dtype(array.dtype)), tuple(array.shape))
                # A chunk is read as a whole: one must not be larger than its array.
                if math.prod(array.storage.chunk_shape) > found[name].num_elements:
                    raise ValueError(f"{name}: expected smaller chunks, got {array.storage}")
        # The files may be anybody's: whatever orbax's parsers make of them is one line.
        except Exception as error:
            raise CheckpointError(f"cannot read {root / item}: {in_one_line(error)}") from error
    return found


def _read(root: Path, wanted: Mapping[str, _Shape]) -> dict[str, np.ndarray]:
    """Arrays of these shapes, which are those of `_stored`."""
    import orbax.checkpoint as ocp

    needed = sum(shape.num_bytes for shape in wanted.values())
    # An array without data on disk is one of zeros, however large.
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > memory:
        raise CheckpointError(
            f"{root}: expected arrays of {memory:,} bytes at most, got {needed:,}"
        )
    arrays = {
        name: np.zeros(shape.shape, np.dtype(shape.dtype))
        for name, shape in wanted.items()
        if not shape.num_elements
    }
    for item in _ITEMS:
        names = [name for name in wanted if _item_of(name) == item and name not in arrays]
        if not names:
            continue
        if (root / item / _names_of(0)).exists():
            saved = read_large(root / item)
            arrays |= {name: saved[name] for name in names}
            continue
        arguments = ocp.args.PyTreeRestore(
            item=dict.fromkeys(names, 0),
            restore_args={name: ocp.RestoreArgs(restore_type=np.ndarray) for name in names},
            partial_restore=True,
        )
        try:
            handler = ocp.PyTreeCheckpointHandler(multiprocessing_options=_alone())
            arrays |= handler.restore((root / item).absolute(), args=arguments)
        except Exception as error:  # as in `_stored`
            raise CheckpointError(f"cannot read {root / item}: {in_one_line(error)}") from error
    return arrays


def _names_of(part: int) -> str:
    return f"names-{part}.json" if part else "names.json"


def _read_part(root: Path, part: int, prefix: str) -> dict[str, np.ndarray]:
    """The arrays of a part, mapped: a header that claims more than its file has is refused."""
    arrays, listed = {}, json.loads(read_regular(root / _names_of(part)))
    if not isinstance(listed, dict):
        raise ValueError(f"{_names_of(part)} is no object")
    for name, (file, dtype) in listed.items():
        if Path(file).name != file:
            raise ValueError(f"{file!r:.80} is no file of this folder")
        if name.startswith(prefix):
            array = np.load(root / file, allow_pickle=False, mmap_mode="r")
            # The .npy format does not know bfloat16 and gives two nameless bytes back.
            arrays[name] = array.view(np.ndarray).view(np.dtype(dtype))
    return arrays


def _rows_of(parts: Sequence[np.ndarray], rows: slice | None) -> np.ndarray:
    """The rows of all parts, one after another, or some of them."""
    first, kept = 0, []
    for part in parts:
        start, stop = (0, len(part)) if rows is None else (rows.start - first, rows.stop - first)
        kept.append(part[max(0, start) : max(0, stop)])
        first += len(part)
    return np.concatenate(kept)
