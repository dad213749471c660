"""The checkpoints of a run: written whole or not at all, verified before they are used.

    directory/000000012000/params/     parameters, by orbax: a flat dict from path to array
                           state/      the rest of the saved tree, likewise
                           extra/      large arrays as .npy files, and names.json
                           meta.json   counts, configuration and the like
                           sums.json   size and SHA-256 of every other file, written last
    directory/best/000000009000/       the best evaluated parameters, kept apart from the others
    directory/damaged-*, superseded-*  set aside: never read, never deleted
    directory/.saving, .deleted        being written or deleted; never read
    directory/.lock                    held while a process writes

A save becomes visible through one rename, after everything in it is on disk, and older checkpoints
are deleted only after that rename is on disk too. So whenever the process dies, the newest intact
checkpoint is either the one being saved or the one before it.

Orbax writes and reads the arrays. Sums are ours because orbax restores flipped bits in array data
without noticing. Publishing and retention are ours because `CheckpointManager.save` does both in
one call: it deletes the oldest checkpoint before the replay and the sums of the new one can be
written, so that with two kept a SIGKILL at that moment leaves one. A checkpoint is nevertheless a
step that a `CheckpointManager` of orbax can restore.
"""

import contextlib
import fcntl
import json
import logging
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import jax
import numpy as np

from seedrl import stored_arrays, sums
from seedrl.errors import CheckpointError, in_one_line
from seedrl.run_files import read_regular
from seedrl.types import Tree

_logger = logging.getLogger(__name__)

META = "meta.json"
SAVING, DELETED = ".saving", ".deleted"
PARAMS = ("params", META)  # the parts of a checkpoint that a policy needs
# A step that is saved again is first moved aside under the second name, and remains a checkpoint.
NAME = re.compile(r"(\d{12,})(\.replaced)?")
_LOCK_SECONDS = 60.0


class Checkpoint(NamedTuple):
    """A checkpoint whose files were verified.

    Attributes:
      step: what it was saved as.
      path: its directory.
      meta: what its writer recorded; a key that is missing raises CheckpointError.
    """

    step: int
    path: Path
    meta: dict[str, Any]


class Written(NamedTuple):
    """What other processes have written: entries of the sums, and additions to the meta data."""

    files: Mapping[str, Any]
    meta: Mapping[str, Any]


class OtherWriters(NamedTuple):
    """Other processes that write parts of a checkpoint, each by `write_part`.

    Attributes:
      begin: tells them the folder in which it is being written.
      written: waits for their parts; raises CheckpointError if one of them could not write.
    """

    begin: Callable[[Path], None]
    written: Callable[[], Written]


_NONE = OtherWriters(lambda folder: None, lambda: Written({}, {}))


# Saving


def save(
    directory: Path,
    step: int,
    arrays: Mapping[str, Tree],
    meta: Mapping[str, Any],
    *,
    keep: int | None,
    extra: Mapping[str, np.ndarray] | None = None,
    others: OtherWriters = _NONE,
) -> Path:
    """Saves a checkpoint, then deletes all but the newest `keep` ones. Blocks until it is durable.

    A checkpoint of the same step is replaced. Those of later steps are of a future that was given
    up (the run was begun anew): they are renamed to `superseded-*`, so that none resumes.

    Args:
      directory: created if it does not exist.
      step: non-negative; the newest checkpoint is the one with the greatest.
      arrays: trees of numpy or JAX arrays or scalars by name, `params` and others. PRNG keys as raw
        `uint32` key data.
      meta: anything that JSON can hold, without NaN.
      keep: at least 2: one that is damaged is never the end of a run; None: the new one alone.
      extra: large arrays by name, saved without compression.
      others: processes that write parts of it.

    Returns the checkpoint's directory. Raises CheckpointError if it cannot be written (disk full,
    no permission); nothing of it remains then, and what was there before is untouched.
    """
    if keep is not None and keep < 2:
        raise ValueError(f"expected checkpoint.keep of at least 2, got {keep}")
    assert step >= 0
    target = directory / f"{step:012d}"
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with writing(directory):
            _remove_leftovers(directory)
            _write(target, jax.tree.map(np.asarray, dict(arrays)), dict(meta), extra or {}, others)
            _retain(directory, step, keep)
    # Tensorstore reports a full disk as a ValueError or a RuntimeError, depending on where it hits.
    except (OSError, ValueError, RuntimeError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"cannot save checkpoint {target}: {in_one_line(error)}") from error
    return target


def _write(
    target: Path,
    arrays: dict[str, Tree],
    meta: dict[str, Any],
    extra: Mapping[str, np.ndarray],
    others: OtherWriters,
) -> None:
    """Writes a checkpoint beside its place, then publishes it: `target` is whole or not there."""
    folder = target.parent / SAVING
    folder.mkdir(mode=0o700)
    try:
        (folder / "extra").mkdir()
        others.begin(folder)
        stored_arrays.write_tree(folder, arrays)
        stored_arrays.write_large(folder / "extra", extra)
        written = others.written()
        content = json.dumps({**meta, **written.meta}, indent=1, allow_nan=False)
        (folder / META).write_text(content)
        sums.write(folder, int(target.name), written.files)
        _publish(folder, target)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def write_part(folder: Path, extra: Mapping[str, np.ndarray], part: int) -> dict[str, Any]:
    """Writes rows of the arrays of a checkpoint that another process saves.

    Args:
      folder: in which that is done.
      extra: large arrays by name.
      part: number of this process, from 1.

    Returns entries of the sums. Raises CheckpointError if it cannot be written.
    """
    try:
        return sums.entries(folder, stored_arrays.write_large(folder / "extra", extra, part=part))
    except OSError as error:
        raise CheckpointError(f"cannot save a part of {folder}: {in_one_line(error)}") from error


def _publish(folder: Path, target: Path) -> None:
    aside = target.with_name(f"{target.name}.replaced")
    if target.exists():
        delete(aside)
        target.rename(aside)
    try:
        folder.rename(target)
    except BaseException:
        if aside.exists():
            aside.rename(target)
        raise
    sums.sync(target.parent)
    delete(aside)


def _retain(directory: Path, step: int, keep: int | None) -> None:
    listed = _listed(directory)
    if keep is None:
        doomed = [path for other, path in listed if other != step]
    else:
        doomed = [path for other, path in listed if other <= step][:-keep]
        for other, path in listed:
            if other > step:
                _logger.warning("checkpoint %s is later than the one just saved, %d", path, step)
                _set_aside(path, "superseded")
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
        doomed = path.with_name(DELETED)
        shutil.rmtree(doomed, ignore_errors=True)
        path.rename(doomed)
        shutil.rmtree(doomed, ignore_errors=True)


def _remove_leftovers(directory: Path) -> None:
    # Whoever holds the lock is the only writer: what another left behind, a dead one left behind.
    for name in (SAVING, DELETED):
        shutil.rmtree(directory / name, ignore_errors=True)


@contextlib.contextmanager
def writing(directory: Path, *, seconds: float | None = None) -> Iterator[None]:
    """Inside, this process alone changes `directory`.

    Waits `seconds` for another one; then CheckpointError.
    """
    descriptor = os.open(directory / ".lock", os.O_RDWR | os.O_CLOEXEC | os.O_CREAT, 0o600)
    deadline = time.monotonic() + (_LOCK_SECONDS if seconds is None else seconds)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() >= deadline:
                    raise CheckpointError(f"another process is saving to {directory}") from error
                time.sleep(0.02)
        yield
    finally:
        os.close(descriptor)


# Choosing


def choose(
    workdir: Path,
    *,
    step: int | None = None,
    is_best: bool = False,
    or_best: bool = False,
    parts: Collection[str] = (),
) -> Checkpoint:
    """An intact checkpoint in the folder of a run: by default the newest.

    Args:
      workdir: the run's folder.
      step: that of this very step (updates), which may be the best one.
      is_best: the best one; then `step` is not looked at.
      or_best: the best one will do where no other is saved.
      parts: verifies these files and folders of it, such as `PARAMS`; by default all.

    Raises CheckpointError if there is none such.
    """
    directory = workdir / "checkpoints"
    if is_best:
        found, missing = best(workdir, parts), "; no round of evaluation has ended in this run"
    elif step is not None:
        alone = best(workdir, parts)
        return alone if alone and alone.step == step else find(directory, step, parts)
    else:
        found, missing = latest(directory, parts), "; train first"
        if found is None and or_best:
            found = best(workdir, parts)
        if found is None and best(workdir, parts) is not None:
            missing = "; its best parameters alone are saved: choose these (--best, or best=True)"
    if found is None:
        raise CheckpointError(f"expected a checkpoint in {directory}, found none{missing}")
    return found


def latest(directory: Path, parts: Collection[str] = ()) -> Checkpoint | None:
    """The newest intact checkpoint, or None if there are none. Only reads.

    Damaged ones that are passed over for it are logged as errors, one line each. Raises
    CheckpointError if there are checkpoints but none is intact, or one may not be read or has
    another format: that is no damage.
    """
    problems: list[str] = []
    for _, path in reversed(_listed(directory)):
        problem = sums.damage(path, parts)
        if problem is None:
            for passed in problems:
                _logger.error("damaged checkpoint, taking an older one: %s", passed)
            return opened(path)
        # A learner that is running may have deleted it since it was listed.
        if path.is_dir():
            problems.append(problem)
    if problems:
        raise CheckpointError(
            f"expected an intact checkpoint in {directory}, got {len(problems)} damaged; "
            f"the newest: {problems[0]}; restore them from a copy or start a new workdir"
        )
    return None


def take_over(directory: Path) -> Checkpoint | None:
    """Like `latest`, for the process that resumes from it and saves.

    What a killed process left half-written is removed. The damaged ones are renamed to
    `damaged-*`, so that they do not count as kept: an intact one that is older must not be deleted
    for them. Raises CheckpointError also if that fails.
    """
    found = latest(directory)
    if found is None:
        return None
    try:
        with writing(directory):
            _remove_leftovers(directory)
            paths = [path for _, path in _listed(directory)]
            # All that is newer than the newest intact one is damaged.
            for path in paths[paths.index(found.path) + 1 :]:
                _logger.error("%s is damaged; it is now %s", path, _set_aside(path, "damaged"))
    except CheckpointError:
        raise
    except OSError as error:
        raise CheckpointError(f"cannot resume in {directory}: {in_one_line(error)}") from error
    return found


def find(directory: Path, step: int, parts: Collection[str] = ()) -> Checkpoint:
    """The checkpoint of that very step. Raises CheckpointError if it is absent or damaged."""
    listed = _listed(directory)
    paths = [path for candidate, path in listed if candidate == step]
    if not paths:
        steps = ", ".join(str(candidate) for candidate, _ in listed) or "none"
        raise CheckpointError(f"expected a checkpoint of step {step} in {directory}, got {steps}")
    if (problem := sums.damage(paths[-1], parts)) is not None:
        raise CheckpointError(f"damaged checkpoint: {problem}; choose another step")
    return opened(paths[-1])


def best(workdir: Path, parts: Collection[str] = ()) -> Checkpoint | None:
    """The best checkpoint, or None. Raises CheckpointError if it is damaged."""
    return latest(best_directory(workdir), parts)


def best_directory(workdir: Path) -> Path:
    """Where the best checkpoint is."""
    return workdir / "checkpoints" / "best"


def run_of_best(directory: Path) -> Path | None:
    """The run whose best checkpoint is in this directory; None if it is no such place."""
    run = directory.absolute().parent.parent
    return run if best_directory(run) == directory.absolute() else None


def holds_best(checkpoint: Checkpoint) -> bool:
    """Whether it is a best checkpoint, which holds parameters alone and what they scored."""
    return "evaluation" in checkpoint.meta


def best_return(checkpoint: Checkpoint) -> float:
    """What the best checkpoint has scored: the mean of its round."""
    return float(checkpoint.meta["evaluation"]["mean_return"])


def holds_confirmed(checkpoint: Checkpoint) -> bool:
    """True if its parameters have confirmed the target of the run."""
    return "params_updates" in checkpoint.meta


def updates_of_params(checkpoint: Checkpoint) -> int:
    """After how many updates its parameters acted.

    Of a run that has confirmed its target the newest checkpoint holds what was confirmed, beside
    an optimizer and counts that are later ones.
    """
    return int(checkpoint.meta.get("params_updates", checkpoint.step))


def _listed(directory: Path) -> list[tuple[int, Path]]:
    """Steps and paths of all checkpoints, oldest first; a replaced one before its successor."""
    found = []
    try:
        paths = list(directory.iterdir())
    except FileNotFoundError:
        return []
    except PermissionError as error:
        sums.refuse_reading(directory, error)
    except OSError as error:
        raise CheckpointError(f"cannot list checkpoints: {in_one_line(error)}") from error
    for path in paths:
        match = NAME.fullmatch(path.name)
        if match and path.is_dir():
            found.append((int(match[1]), match[2] is None, path))
    return [(step, path) for step, _, path in sorted(found)]


class _Meta(dict[str, Any]):
    """What a checkpoint records. It may be anybody's: a missing key is one line for its user."""

    def __init__(self, path: Path, content: dict[str, Any]):
        super().__init__(content)
        self._path = path

    def __missing__(self, key: str) -> NoReturn:
        raise CheckpointError(f"{self._path}: expected `{key}`, which is missing")


# Values by which a resumed run is steered; a wrong type would be a traceback much later.
_KINDS: Mapping[str, type | tuple[type, ...]] = {
    "config": str,
    "env_steps": int,
    "env_spec": (str, dict),
    "evaluation": dict,
    "hosts": int,
    "limiter": dict,
    "params_updates": int,
    "replay_indices": list,
    "streams": dict,
    "totals": dict,
}


def opened(path: Path) -> Checkpoint:
    """A checkpoint whose files were verified; they may be anybody's. Raises CheckpointError."""
    file = path / META
    try:
        content = json.loads(read_regular(file), parse_constant=_refuse_constant)
        if not isinstance(content, dict):
            raise TypeError("no object")
        for key, kind in _KINDS.items():
            value = content.get(key)
            if key in content and (not isinstance(value, kind) or isinstance(value, bool)):
                raise TypeError(f"`{key}` is {type(value).__name__}")
            if isinstance(value, int) and value < 0:
                raise ValueError(f"`{key}` is {value}")
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise CheckpointError(
            f"{file}: expected what a checkpoint records of itself, got "
            f"{type(error).__name__}: {in_one_line(error)}"
        ) from error
    return Checkpoint(int(path.name.split(".")[0]), path, _Meta(file, content))


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"expected finite numbers, got {name}")


def restore(checkpoint: Checkpoint, abstract: Mapping[str, Tree]) -> dict[str, Any]:
    """The saved trees in the structure of `abstract`; see `stored_arrays.read_tree`."""
    return stored_arrays.read_tree(checkpoint.path, abstract)


def restore_extra(
    checkpoint: Checkpoint, *, prefix: str = "", rows: slice | None = None
) -> dict[str, np.ndarray]:
    """The arrays that were saved as `extra`; see `stored_arrays.read_large`."""
    return stored_arrays.read_large(checkpoint.path / "extra", prefix=prefix, rows=rows)
