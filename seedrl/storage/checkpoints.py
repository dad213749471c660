"""A directory of checkpoints: written whole or not at all, verified before they are believed.

    directory/000000012000/state, extra   the arrays (`seedrl.storage.array_store`)
                           meta.json      what the caller says of them
                           manifest.json  size and SHA-256 of every file (`seedrl.storage.manifest`)
    directory/damaged-*, superseded-*     set aside: never read, never deleted
    directory/.tmp-*                      being written, or being deleted; never read
    directory/.lock                       held while a process writes

All functions block until they are done; a learner calls `save` in a thread of its own. A save
becomes visible through one rename, after everything in it is on disk, and older checkpoints are
deleted only after that rename is on disk too. So whenever the process dies, the newest intact
checkpoint is either the one being saved or the one before it.
"""

import contextlib
import json
import logging
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from seedrl.errors import CheckpointError
from seedrl.storage import array_store, manifest
from seedrl.storage.parts import NOBODY, OtherWriters, cause
from seedrl.storage.writing import writing
from seedrl.types import Tree

_logger = logging.getLogger(__name__)

_FORMAT, _EARLIER_FORMAT = 2, 1
# A step that is saved again is first moved aside under the second name, and remains a checkpoint.
NAME = re.compile(r"(\d{12,})(\.replaced)?")
TEMPORARY = ".tmp-"  # begins the name of what is being written, or being deleted
_LOCK_SECONDS = 60.0


class Checkpoint(NamedTuple):
    """A checkpoint whose files were verified.

    Attributes:
      step: what it was saved as.
      path: its directory.
      meta: what its writer said of it.
    """

    step: int
    path: Path
    meta: dict[str, Any]


def save(
    directory: Path,
    step: int,
    arrays: Tree,
    meta: Mapping[str, Any],
    *,
    keep: int | None,
    extra: Mapping[str, np.ndarray] | None = None,
    others: OtherWriters = NOBODY,
) -> Path:
    """Saves a checkpoint, then deletes all but the newest `keep` ones.

    A checkpoint of the same step is replaced. Those of later steps are of a future that was given
    up (damaged when a run resumed): they are renamed to `superseded-*`, so that none resumes.

    Args:
      directory: created if it does not exist.
      step: non-negative; the newest checkpoint is the one with the greatest.
      arrays: tree of numpy or JAX arrays or scalars. PRNG keys as raw `uint32` key data.
      meta: anything that JSON can hold.
      keep: at least 2: one that is damaged is never the end of a run; None: the new one alone.
      extra: large arrays by name, saved without compression.
      others: that write parts of it.

    Returns the checkpoint's directory. Raises CheckpointError if it cannot be written (disk full,
    no permission); nothing of it remains then, and what was there before is untouched.
    """
    if keep is not None and keep < 2:
        raise ValueError(f"expected checkpoint.keep of at least 2, got {keep}")
    assert step >= 0
    target = directory / f"{step:012d}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with writing(directory, timeout_seconds=_LOCK_SECONDS):
            _remove_temporary(directory)
            content = {"format": _FORMAT, "step": step, "meta": dict(meta)}
            _write(target, content, jax.tree.map(np.asarray, arrays), extra or {}, others)
            _prune(directory, step, keep)
    # Tensorstore reports a full disk as a ValueError or a RuntimeError, depending on where it hits.
    except (OSError, ValueError, RuntimeError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"cannot save checkpoint {target}: {cause(error)}") from error
    return target


def _write(
    target: Path,
    content: dict[str, Any],
    state: Tree,
    extra: Mapping[str, np.ndarray],
    others: OtherWriters,
) -> None:
    """Writes a checkpoint beside its place, then publishes it: `target` is whole or not there."""
    _require_space(target.parent, [*jax.tree.leaves(state), *extra.values()])
    temporary = Path(tempfile.mkdtemp(prefix=f"{TEMPORARY}{target.name}-", dir=target.parent))
    try:
        (temporary / "extra").mkdir()
        others.begin(temporary)
        array_store.write_tree(temporary / "state", state)
        array_store.write_large(temporary / "extra", extra)
        written = others.written()
        content["meta"] |= written.meta
        (temporary / "meta.json").write_text(json.dumps(content, indent=1))
        manifest.write(temporary, written.files)
        _publish(temporary, target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def latest(directory: Path) -> Checkpoint | None:
    """The newest intact checkpoint, or None if there are none. Only reads.

    Damaged ones that are passed over for it are logged as errors, one line each. Raises
    CheckpointError if there are checkpoints but none is intact.
    """
    found, passed = _newest_intact(directory)
    for _, problem in passed:
        _logger.error("damaged checkpoint, taking an older one: %s", problem)
    return found


def take_over(directory: Path) -> Checkpoint | None:
    """Like `latest`, for the process that resumes from it and saves.

    What a killed process left half-written is removed. The damaged ones are renamed to
    `damaged-*`, so that they do not count as kept: an intact one that is older must not be deleted
    for them. Raises CheckpointError also if that fails.
    """
    with contextlib.suppress(OSError), writing(directory, timeout_seconds=0.0, create=False):
        _remove_temporary(directory)
    found, passed = _newest_intact(directory)
    if not passed:
        return found
    try:
        with writing(directory, timeout_seconds=_LOCK_SECONDS):
            for path, problem in passed:
                aside = _set_aside(path, "damaged")
                _logger.error(
                    "damaged checkpoint, taking an older one: %s; it is now %s", problem, aside
                )
    except CheckpointError:
        raise
    except OSError as error:
        raise CheckpointError(
            f"cannot set a damaged checkpoint aside in {directory}: {cause(error)}"
        ) from error
    return found


def find(directory: Path, step: int) -> Checkpoint:
    """The checkpoint of that very step. Raises CheckpointError if it is absent or damaged."""
    listed = _listed(directory) if directory.is_dir() else []
    paths = [path for candidate, path in listed if candidate == step]
    if not paths:
        steps = ", ".join(str(candidate) for candidate, _ in listed) or "none"
        raise CheckpointError(f"expected a checkpoint of step {step} in {directory}, got {steps}")
    if (problem := manifest.damage(paths[-1])) is not None:
        raise CheckpointError(f"damaged checkpoint: {problem}; choose another step")
    return _opened(paths[-1])


def restore(checkpoint: Checkpoint, abstract: Tree) -> Tree:
    """The saved arrays as numpy arrays in the structure of `abstract`.

    Args:
      abstract: tree of arrays or `jax.ShapeDtypeStruct`; top-level keys may be left out.

    Raises CheckpointError that names each path whose presence, shape or dtype differs.
    """
    return array_store.read_tree(checkpoint.path / "state", abstract)


def restore_extra(
    checkpoint: Checkpoint, *, prefix: str = "", rows: slice | None = None
) -> dict[str, np.ndarray]:
    """The arrays that were saved as `extra` under names with that prefix; maybe none.

    `rows`: only these of each.
    """
    return array_store.read_large(checkpoint.path / "extra", prefix=prefix, rows=rows)


def _newest_intact(directory: Path) -> tuple[Checkpoint | None, list[tuple[Path, str]]]:
    """What `latest` returns, and the damaged ones that are newer, each with what is wrong."""
    if not directory.is_dir():
        return None, []
    passed: list[tuple[Path, str]] = []
    for _, path in reversed(_listed(directory)):
        problem = manifest.damage(path)
        if problem is None:
            return _opened(path), passed
        # A learner that is running may have deleted it since it was listed.
        if path.is_dir():
            passed.append((path, problem))
    if passed:
        raise CheckpointError(
            f"expected an intact checkpoint in {directory}, got {len(passed)} damaged; "
            f"the newest: {passed[0][1]}; restore them from a copy or start a new workdir"
        )
    return None, []


def _publish(temporary: Path, target: Path) -> None:
    aside = target.with_name(f"{target.name}.replaced")
    if target.exists():
        delete(aside)
        target.rename(aside)
    temporary.rename(target)
    manifest.sync(target.parent)
    delete(aside)


def _prune(directory: Path, step: int, keep: int | None) -> None:
    listed = _listed(directory)
    if keep is None:
        doomed = [path for other, path in listed if other != step]
    else:
        doomed = [path for other, path in listed if other <= step][:-keep]
        for later in [path for other, path in listed if other > step]:
            _logger.warning("checkpoint %s is later than the one just saved, %d", later, step)
            _set_aside(later, "superseded")
    for path in doomed:
        delete(path)


def _set_aside(path: Path, why: str) -> Path:
    """Renames the checkpoint to `WHY-STEP-*`: it does not count any more, and is not deleted."""
    prefix = f"{why}-{int(path.name.split('.')[0])}-"
    return path.rename(tempfile.mkdtemp(prefix=prefix, dir=path.parent))


def delete(path: Path) -> None:
    """Removes a checkpoint, or what is left of one. For who holds `writing`."""
    if path.exists():
        # Renamed first: no reader and no kill ever sees a part of a checkpoint.
        doomed = tempfile.mkdtemp(prefix=f"{TEMPORARY}deleted-", dir=path.parent)
        path.rename(doomed)
        shutil.rmtree(doomed, ignore_errors=True)


def _remove_temporary(directory: Path) -> None:
    # Whoever holds the lock is the only writer: what another left behind, a dead one left behind.
    for path in directory.glob(f"{TEMPORARY}*"):
        shutil.rmtree(path, ignore_errors=True)


def _require_space(directory: Path, arrays: list[np.ndarray]) -> None:
    needed = sum(array.nbytes for array in arrays)
    free = shutil.disk_usage(directory).free
    if free < needed:
        raise OSError(f"expected {needed} free bytes, got {free}")


def _listed(directory: Path) -> list[tuple[int, Path]]:
    """Steps and paths of all checkpoints, oldest first; a replaced one before its successor."""
    found = []
    for path in directory.iterdir():
        match = NAME.fullmatch(path.name)
        if match and path.is_dir():
            found.append((int(match[1]), match[2] is None, path))
    return [(step, path) for step, _, path in sorted(found)]


def _opened(path: Path) -> Checkpoint:
    """A checkpoint whose files are those that were written; by whom is not known."""
    try:
        content = json.loads((path / "meta.json").read_bytes())
        written_as, step, meta = content["format"], content["step"], content["meta"]
        if not (isinstance(step, int) and isinstance(meta, dict)):
            raise TypeError("its step is no number, or its meta no object")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise CheckpointError(
            f"{path / 'meta.json'}: expected what a checkpoint says of itself, got "
            f"{type(error).__name__}: {error}"
        ) from error
    if written_as not in (_FORMAT, _EARLIER_FORMAT):
        raise CheckpointError(
            f"expected checkpoint format {_EARLIER_FORMAT} or {_FORMAT} in {path}, got "
            f"{written_as}; use the version of seedrl that wrote it"
        )
    return Checkpoint(step, path, meta)
