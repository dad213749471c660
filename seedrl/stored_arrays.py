"""The arrays of a checkpoint: trees by orbax, and large arrays as .npy files.

    params/    parameters, by orbax: a flat dict from path to array
    state/     the rest of the saved tree, likewise; if several processes share a run, both of these
               are written like `extra`
    extra/     the replay, without compression
          names.json    file and dtype of every array
          000.npy ...

Trees are stored flat, by path: saved and wanted arrays are compared name by name, and the structure
(NamedTuples of an optimizer, for instance) is the reader's. A checkpoint may come from anybody: the
sizes that its metadata claim are compared with its files before an array is read.
"""

import contextlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from seedrl.errors import CheckpointError, in_one_line
from seedrl.run_files import read_object
from seedrl.types import Tree

# orbax is imported inside functions: its import takes a third of a second, in which a learner could
# already act. A learner saves for the first time much later.

# The folder of a tree of that name; all others share `state`.
_FOLDERS = {"params": "params", "replay": "extra"}
ITEMS = ("params", "state", "extra")
_NAMES = "names.json"
# Learned parameters hardly compress; an optimizer's zeros before the first update do. What has no
# data on disk would be read as zeros, however large its metadata claim it is.
_FREE_BYTES, _MOST_INFLATION = 2**28, 64


def write_tree(root: Path, tree: Mapping[str, Tree]) -> None:
    """Writes trees of numpy or JAX arrays or scalars by name, `params` and others, below `root`.

    Raises OSError, or tensorstore's ValueError or RuntimeError.
    """
    import orbax.checkpoint as ocp

    arrays = {name: np.asarray(leaf) for name, leaf in named(tree).items()}
    for item in ITEMS:
        path = root / item
        # Orbax refuses arrays without elements; the reader's shapes are enough to restore them.
        filled = {n: array for n, array in arrays.items() if _item_of(n) == item and array.size}
        # Of several processes orbax would wait for the others, through a service that they do not
        # share.
        if filled and (item == "extra" or jax.process_count() > 1):
            path.mkdir()
            _write_files(path, filled)
        elif filled:
            with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
                checkpointer.save(path.absolute(), args=ocp.args.PyTreeSave(filled))


def read_tree(root: Path, abstract: Mapping[str, Tree]) -> dict[str, Any]:
    """The trees in `root` as numpy arrays in the structure of `abstract`.

    `abstract`: arrays or `jax.ShapeDtypeStruct`; saved trees of other names are not read. Raises
    CheckpointError that names each path whose presence, shape or dtype differs.
    """
    arrays = read_all(root, _items_of(abstract))
    _require_fit(root, arrays, abstract)
    # Arrays without elements are not on disk.
    wanted = named(abstract).items()
    leaves = [arrays[n] if math.prod(a.shape) else np.zeros(a.shape, a.dtype) for n, a in wanted]
    restored: dict[str, Any] = jax.tree.unflatten(jax.tree.structure(dict(abstract)), leaves)
    return restored


def read_all(root: Path, items: Sequence[str] = ITEMS) -> dict[str, np.ndarray]:
    """All arrays in these folders of `root`, by their paths. Raises CheckpointError."""
    stored = _stored(root, items)
    wanted = sum(math.prod(a.shape) * np.dtype(a.dtype).itemsize for a in stored.values())
    files = (path for item in items for path in (root / item).rglob("*") if path.is_file())
    on_disk = sum(path.stat().st_size for path in files)
    if wanted > _FREE_BYTES + _MOST_INFLATION * on_disk:
        raise CheckpointError(f"cannot read {root}: {wanted:,} bytes in files of {on_disk:,}")
    arrays: dict[str, np.ndarray] = {}
    for path in (root / item for item in items if (root / item).is_dir()):
        with _reading(path):
            if (path / _NAMES).exists():
                arrays |= {name: np.array(a) for name, a in _mapped(path).items() if a.size}
            else:
                arrays |= _restored(path)
    return arrays


def fitting(
    arrays: Mapping[str, np.ndarray], tree: Mapping[str, Tree]
) -> tuple[dict[str, Any], list[str], list[str]]:
    """`tree` with those of `arrays` that fit in place of its own; their paths; the others'.

    An array fits if its path, shape and dtype are the same, and so are those of all arrays beside
    it: a layer's bias without its kernel, or a mean without its count, would mean nothing. LoRA,
    which adds nothing at first, may be missing.
    """
    own = named(tree)
    wanted = {name: _type_of(a) for name, a in own.items() if math.prod(a.shape)}
    stored = {name: _type_of(a) for name, a in arrays.items()}
    parents = {name: name.rpartition("/")[0] for name in wanted | stored}
    added = {name for name in wanted.keys() - stored.keys() if "/lora_" in name}
    differing = (name for name in parents if wanted.get(name) != stored.get(name))
    changed = {parents[name] for name in differing if name not in added}
    taken = [name for name in wanted if parents[name] not in changed and name not in added]
    leaves = [arrays[name] if name in taken else leaf for name, leaf in own.items()]
    fitted: dict[str, Any] = jax.tree.unflatten(jax.tree.structure(dict(tree)), leaves)
    return fitted, taken, [name for name in own if name not in taken]


def require_fit(root: Path, abstract: Mapping[str, Tree]) -> None:
    """Raises the CheckpointError with which `read_tree` would refuse."""
    _require_fit(root, _stored(root, _items_of(abstract)), abstract)


def _require_fit(root: Path, arrays: Mapping[str, Any], abstract: Mapping[str, Tree]) -> None:
    if differences := tree_difference(arrays, abstract):
        raise CheckpointError(
            f"{root} does not fit: {'; '.join(differences)}; start a new run or restore the config"
        )


def tree_difference(arrays: Mapping[str, Any], abstract: Mapping[str, Tree]) -> list[str]:
    """One line per path of these trees whose presence, shape or dtype in `arrays` differs."""
    # Arrays without elements are not on disk.
    wanted = {name: _type_of(a) for name, a in named(abstract).items() if math.prod(a.shape)}
    stored = {name: _type_of(a) for name, a in arrays.items() if tree_of(name) in abstract}
    return [
        f"{name}: expected {wanted.get(name, 'nothing')}, "
        f"checkpoint has {stored.get(name, 'nothing')}"
        for name in [*wanted, *(name for name in stored if name not in wanted)]
        if wanted.get(name) != stored.get(name)
    ]


def named(tree: Mapping[str, Tree]) -> dict[str, Any]:
    """The leaves of trees by the names that they have in files: `params/core/kernel`.

    The words of a replay's names are separated by dots.
    """
    leaves = jax.tree_util.tree_leaves_with_path(dict(tree))
    found = {_name_of(path): leaf for path, leaf in leaves}
    assert len(found) == len(leaves), "two paths of the tree have one name"
    return {n: leaf if hasattr(leaf, "dtype") else np.asarray(leaf) for n, leaf in found.items()}


def _name_of(path: tuple[Any, ...]) -> str:
    separator = "." if path[0].key == "replay" else "/"
    return jax.tree_util.keystr(path, simple=True, separator=separator)


def tree_of(name: str) -> str:
    """The tree, such as `params`, whose array has that name."""
    return re.split("[/.]", name, maxsplit=1)[0]


def _item_of(name: str) -> str:
    return _FOLDERS.get(tree_of(name), "state")


def _items_of(trees: Mapping[str, Tree]) -> list[str]:
    return sorted({_item_of(name) for name in trees})


def _write_files(root: Path, arrays: Mapping[str, np.ndarray]) -> None:
    names = {}
    for position, (name, array) in enumerate(arrays.items()):
        names[name] = (f"{position:03d}.npy", str(array.dtype))
        np.save(root / names[name][0], array, allow_pickle=False)  # objects could be code
    (root / _NAMES).write_text(json.dumps(names, indent=1))


def _mapped(root: Path) -> dict[str, np.ndarray]:
    # Mapped, not read: numpy refuses a header that claims more than its file has.
    arrays = {}
    for name, (file, dtype) in read_object(root / _NAMES).items():
        if Path(file).name != file:
            raise ValueError(f"{file!r:.80} is no file of this directory")
        array = np.load(root / file, allow_pickle=False, mmap_mode="r")
        # The .npy format does not know bfloat16 and gives two nameless bytes back.
        arrays[name] = array.view(np.ndarray).view(np.dtype(dtype))
    return arrays


def _type_of(array: Any) -> str:
    # `float32[4, 8]`: equal for arrays that fit each other.
    return f"{np.dtype(array.dtype)}{[int(size) for size in array.shape]}"


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    # Any error: the files may be anybody's, and the parsers are orbax's.
    except Exception as error:
        raise CheckpointError(f"cannot read {path}: {in_one_line(error)}") from error


def _handler() -> Any:
    import orbax.checkpoint as ocp

    # Of several processes each reads by itself: by default orbax would wait for the others.
    options = ocp.options.MultiprocessingOptions()
    if jax.process_count() > 1:
        own = jax.process_index()
        options = ocp.options.MultiprocessingOptions(primary_host=own, active_processes={own})
    return ocp.PyTreeCheckpointHandler(multiprocessing_options=options)


def _stored(root: Path, items: Sequence[str]) -> dict[str, Any]:
    # By name, anything with the shape and dtype that the array has on disk; nothing is read.
    found: dict[str, Any] = {}
    for path in (root / item for item in items if (root / item).is_dir()):
        with _reading(path):
            if (path / _NAMES).exists():
                found |= {name: array for name, array in _mapped(path).items() if array.size}
                continue
            described = dict(_handler().metadata(path.absolute()).tree)
            for name, array in described.items():
                # A chunk is read as a whole: it must not be larger than its array.
                if math.prod(array.storage.chunk_shape) > math.prod(array.shape):
                    raise ValueError(f"{name}: expected smaller chunks, got {array.storage}")
            found |= described
    return found


def _restored(path: Path) -> dict[str, np.ndarray]:
    import orbax.checkpoint as ocp

    handler = _handler()
    as_numpy = ocp.RestoreArgs(restore_type=np.ndarray)
    arguments = jax.tree.map(lambda _: as_numpy, dict(handler.metadata(path.absolute()).tree))
    restored: dict[str, np.ndarray] = handler.restore(
        path.absolute(), args=ocp.args.PyTreeRestore(restore_args=arguments)
    )
    return restored
