"""The checkpoints of a run: written whole or not at all, verified before they are used.

    directory/000000012000/params/     parameters, by orbax: a flat dict from path to array
                           state/      the rest of the saved tree, likewise
                           extra/      the replay, if it is saved, as .npy files
                           meta.json   counts, configuration and the like
                           sums.json   written last: {"format": 3, "step": 12000, "files":
                                       {name: [bytes, SHA-256]}, "sha256": of these themselves}
    directory/best/000000009000/       the best evaluated parameters, kept apart from the others
    directory/superseded-*             not resumed from: never read, never deleted
    directory/.saving, .deleted        being written or deleted; never read

A save becomes visible through one rename, after everything in it is on disk, and older checkpoints
are deleted only after that rename is on disk too. So whenever the process dies, the newest intact
checkpoint is either the one being saved or the one before it. Only the process that holds the lock
on a run's directory may write here; others read at the same time.

Orbax writes and reads the arrays. Sums are ours because orbax restores flipped bits in array data
without noticing: a reader must be able to tell that it reads all bytes that were written, for this
step. Publishing and retention are ours because `CheckpointManager.save` does both in one call: it
deletes the oldest checkpoint before the replay and the sums of the new one can be written, so that
with two kept a SIGKILL at that moment leaves one. A checkpoint is nevertheless a step that a
`CheckpointManager` of orbax can restore.
"""

import contextlib
import hashlib
import json
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeVar

from google.protobuf import json_format

from seedrl import stored_arrays
from seedrl.errors import CheckpointError, UserError, in_one_line
from seedrl.run_files import open_regular, read_object
from seedrl.specs import EnvSpec
from seedrl.types import Tree
from seedrl.wire import seedrl_pb2
from seedrl.wire.contract import MAJOR, MINOR
from seedrl.wire.spec import spec_message, spec_of

_logger = logging.getLogger(__name__)

META, SUMS = "meta.json", "sums.json"
FORMAT = 3
_MOST_META_BYTES = 2**28  # it lists each sampleable page of a replay
SAVING, DELETED = ".saving", ".deleted"
PARAMS = ("params", META)  # the parts of a checkpoint that a policy needs
# A step that is saved again is first moved aside under the second name, and remains a checkpoint.
_NAME = re.compile(r"\d{12,}(\.replaced)?")

_Found = TypeVar("_Found")


class Checkpoint(NamedTuple):
    """A checkpoint whose files were verified."""

    step: int  # number of updates under which it was saved
    path: Path
    meta: dict[str, Any]  # the records of its writer; a missing key raises CheckpointError


# Saving


def save(
    directory: Path,
    step: int,
    arrays: Mapping[str, Tree],
    meta: Mapping[str, Any],
    *,
    keep: int,
) -> Path:
    """Saves a checkpoint, then deletes all but the newest `keep` ones. Blocks until it is durable.

    A checkpoint of the same step is replaced. Those of later steps belong to an abandoned future:
    they are renamed to `superseded-*`, so that none resumes.

    Args:
      directory: created if it does not exist.
      step: number of updates; the newest checkpoint has the greatest.
      arrays: trees of numpy or JAX arrays or scalars by name, `params` and others; `replay` is
        saved without compression. PRNG keys as raw `uint32` key data.
      meta: anything that JSON can hold, without NaN.
      keep: at least 2 for a run, so that a damaged one is never its end; 1 for the best one.

    Returns the checkpoint's directory. Raises CheckpointError if anything cannot be written (disk
    full, no permission); nothing of the checkpoint remains then, and what was there before is
    untouched. Also if an older one cannot be renamed or deleted; then the new one is there.
    """
    assert step >= 0 and keep >= 1
    target, folder = directory / f"{step:012d}", directory / SAVING
    try:
        _require_no_link(directory)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        # There is one writer: these are left from a process that was killed.
        for name in (SAVING, DELETED):
            shutil.rmtree(directory / name, ignore_errors=True)
        folder.mkdir(mode=0o700)
        stored_arrays.write_tree(folder, arrays)
        # Last: sums that are there cover everything else.
        _seal(folder, step, meta)
        # The new one is durable and visible before an old one is deleted.
        _publish(folder, target)
        supersede(directory, after=target)
        for _, path in listed(directory)[:-keep]:
            _delete(path)
    except CheckpointError:
        raise
    # Tensorstore reports a full disk as a ValueError or a RuntimeError, depending on where it hits.
    except (OSError, ValueError, RuntimeError) as error:
        raise CheckpointError(f"cannot save checkpoint {target}: {in_one_line(error)}") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # not there if it was published
    return target


def _seal(folder: Path, step: int, meta: Mapping[str, Any]) -> None:
    # Writes the records and sums, and makes everything durable.
    (folder / META).write_text(json.dumps(dict(meta), indent=1, allow_nan=False))
    files = {}
    for name in _files(folder):
        files[name] = _entry(folder / name)
        _sync(folder / name)
    content = {"format": FORMAT, "step": step, "files": files}
    (folder / SUMS).write_text(json.dumps({**content, "sha256": _sum_of(content)}, indent=1))
    _sync(folder / SUMS)
    for path in (*(path for path in folder.rglob("*") if path.is_dir()), folder):
        _sync(path)


def _publish(folder: Path, target: Path) -> None:
    # Killed between the two renames, the one moved aside still counts as a checkpoint.
    aside = target.with_name(f"{target.name}.replaced")
    if target.exists():
        if aside.exists():
            _delete(aside)
        target.rename(aside)
    folder.rename(target)
    # Else a power failure could undo the rename, after the older ones were deleted.
    _sync(target.parent)
    if aside.exists():
        _delete(aside)


def supersede(directory: Path, *, after: Path | None = None) -> None:
    """Renames checkpoints newer than `after` to `superseded-*`: no run resumes from them.

    By default all. Raises CheckpointError if the directory is a link: they could be another run's.
    """
    # They are not deleted: they may be all that is left of a run.
    for step, path in reversed(listed(directory)):
        if path == after:
            return
        aside = tempfile.mkdtemp(prefix=f"superseded-{step}-", dir=directory)
        _logger.warning("checkpoint %s is superseded: %s", path, path.rename(aside))


def _delete(path: Path) -> None:
    # Renamed first: no reader and no kill ever sees a part of a checkpoint.
    doomed = path.rename(path.with_name(DELETED))
    shutil.rmtree(doomed, ignore_errors=True)


# Sums


class DamagedError(CheckpointError):
    """A checkpoint that is not as it was written."""


def verified(path: Path, parts: Collection[str] = ()) -> Checkpoint:
    """The checkpoint in `path`, after its files were compared with their sums.

    Verifies only `parts`, some of its files and folders; by default all of them. Raises
    DamagedError about the first file that differs, CheckpointError if it has another format,
    PermissionError if it may not be read: that is no damage, and an older one would lose training.
    """
    file = path / SUMS
    try:
        _verify(path, read_object(file), parts)
        file = path / META
        meta = read_object(file, most_bytes=_MOST_META_BYTES)
        _require_sound(meta)
    except (CheckpointError, PermissionError):
        raise
    # The files may hold anything: deeply nested JSON exceeds the parser's stack.
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        kind = type(error).__name__
        raise DamagedError(
            f"{file}: expected what was saved, got {kind}: {in_one_line(error)}"
        ) from error
    return Checkpoint(_step_of(path), path, _Meta(file, meta))


def _verify(path: Path, content: Mapping[str, Any], parts: Collection[str]) -> None:
    # Before anything else: damage to the sums must not be reported as damage to a listed file.
    if content["sha256"] != (actual := _sum_of(content)):
        raise ValueError(f"SHA-256 {actual} of themselves, {content['sha256']!r:.80} is listed")
    if content["format"] != FORMAT:
        raise CheckpointError(
            f"expected checkpoint format {FORMAT} in {path}, got {content['format']}; use the "
            "version of seedrl that wrote it, or start a new run"
        )
    if content["step"] != _step_of(path):
        raise ValueError(f"those of step {content['step']!r:.80}")
    files, on_disk = content["files"], set(_files(path))
    # Both ways: a listed file may be gone, an unlisted one may have been added.
    for name in sorted({*files, *on_disk} - {SUMS}):
        if parts and name.split("/")[0] not in parts:
            continue
        # A listed name may lead anywhere: only files of this folder are opened.
        found = _entry(path / name) if name in on_disk else None
        if found != (listed := files.get(name)):
            raise DamagedError(f"{path / name}: expected bytes and SHA-256 {listed}, got {found}")


def _files(root: Path) -> list[str]:
    found: list[str] = []
    # A folder that may not be listed is an error, not one without files.
    for folder, folders, files in os.walk(root, onerror=_raise):
        # A link to a folder counts as a file, which it must not be.
        files += [name for name in folders if (Path(folder) / name).is_symlink()]
        found += [(Path(folder) / name).relative_to(root).as_posix() for name in files]
    return sorted(found)


def _raise(error: OSError) -> NoReturn:
    raise error


def _entry(path: Path) -> list[Any]:
    # A FIFO or a link in its place is an OSError, and never waits.
    with open_regular(path) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return [os.fstat(file.fileno()).st_size, digest]


def _sum_of(content: Mapping[str, Any]) -> str:
    listed = {key: value for key, value in content.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(listed, sort_keys=True).encode()).hexdigest()


def _sync(path: Path) -> None:
    # Of a directory it makes the list of names durable, so that renames in it are.
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# Choosing


def read(
    workdir: Path,
    use: Callable[[Checkpoint], _Found],
    *,
    step: int | None = None,
    is_best: bool = False,
    parts: Collection[str] = (),
) -> _Found:
    """`use` of the checkpoint that `choose` takes; of another if its run replaces it meanwhile.

    Raises what they raise.
    """
    while True:
        before = _entries(workdir)
        try:
            return use(choose(workdir, step=step, is_best=is_best, parts=parts))
        except (UserError, OSError):
            # A running learner deletes old ones, and the best one when there is a better one.
            if _entries(workdir) == before:
                raise


def _entries(workdir: Path) -> set[tuple[str, int]]:
    # What is there, by names and inodes: a checkpoint may be replaced under its name.
    found: set[tuple[str, int]] = set()
    for directory in (workdir / "checkpoints", best_directory(workdir)):
        with contextlib.suppress(FileNotFoundError), os.scandir(directory) as entries:
            found |= {(entry.path, entry.inode()) for entry in entries}
    return found


def choose(
    workdir: Path,
    *,
    step: int | None = None,
    is_best: bool = False,
    parts: Collection[str] = (),
) -> Checkpoint:
    """The newest intact checkpoint of a run, or that of `step`; if it has no others, the best one.

    `is_best` takes only the best one; `parts`: see `latest`. Raises CheckpointError if there is
    none, if there are others and all are damaged, or if the run deletes one while it is read.
    """
    best = best_directory(workdir)
    for directory in (best,) if is_best else (best.parent, best):
        if (found := latest(directory, parts, step=step)) is not None:
            return found
    wanted = "the best checkpoint" if is_best else "a checkpoint"
    of_step = "" if step is None else f" of update {step}"
    others = [f"update {number}" for number, _ in listed(best.parent)]
    others += [f"the best one, of update {number}" for number, _ in listed(best)]
    there = ", ".join(others) or "none: train first"
    raise CheckpointError(f"expected {wanted}{of_step} in {best.parent}, found {there}")


def latest(
    directory: Path, parts: Collection[str] = (), *, step: int | None = None
) -> Checkpoint | None:
    """The newest intact checkpoint (of `step`, if it is given), or None if there are none.

    Verifies only `parts` of it, such as `PARAMS`; by default all. Skipped damaged ones are logged
    as errors, one line each. Raises what `verified` raises; CheckpointError also if there are
    checkpoints but none is intact, or the run deletes one meanwhile.
    """
    problems: list[DamagedError] = []
    for number, path in reversed(listed(directory)):
        if step not in (None, number):
            continue
        try:
            found = verified(path, parts)
        except DamagedError as error:
            # If its run has deleted it there is a newer one, and no older one is wanted.
            if not path.is_dir():
                raise
            problems.append(error)
            continue
        for problem in problems:
            _logger.error("damaged checkpoint, taking an older one: %s", problem)
        return found
    if problems:
        raise CheckpointError(
            f"expected an intact checkpoint in {directory}, got {len(problems)} damaged; "
            f"the newest: {problems[0]}; restore them from a copy or start a new run"
        )
    return None


def best_directory(workdir: Path) -> Path:
    return workdir / "checkpoints" / "best"


def best_return(checkpoint: Checkpoint) -> float:
    """Score of a best checkpoint: the mean return of its round."""
    return float(checkpoint.meta["evaluation"]["mean_return"])


def updates_of_params(checkpoint: Checkpoint) -> int:
    """Number of updates of its parameters: those confirmed are older than the optimizer's state."""
    return int(checkpoint.meta.get("params_updates", checkpoint.step))


def listed(directory: Path) -> list[tuple[int, Path]]:
    """Steps and paths of all checkpoints, damaged ones too, oldest first.

    Raises CheckpointError if the directory is a link.
    """
    _require_no_link(directory)
    try:
        paths = list(directory.iterdir())
    except FileNotFoundError:
        return []
    found = [p for p in paths if _NAME.fullmatch(p.name) and p.is_dir() and not p.is_symlink()]
    # A replaced one is before its successor, by its longer name.
    found.sort(key=lambda path: (_step_of(path), -len(path.name)))
    return [(_step_of(path), path) for path in found]


def _step_of(path: Path) -> int:
    return int(path.name.split(".")[0])


def _require_no_link(directory: Path) -> None:
    # What is read or written there could be any folder. The run's own folder is the user's to name.
    for folder in (directory.parent, directory) if directory.name == "best" else (directory,):
        if folder.is_symlink():
            raise CheckpointError(f"{folder}: expected a directory, got a link")


# Records by the types of their values: a reader relies on them. bool is no number here.
_TYPES: dict[str, type] = {
    **dict.fromkeys(("config", "env_spec"), str),
    **dict.fromkeys(("env_steps", "params_updates"), int),
    **dict.fromkeys(("limiter", "totals", "evaluation"), dict),
    "replay_indices": list,
}
_LARGEST = 2**63  # of a count
# Acting continues between the moments at which a checkpoint reads the two counts of its steps.
_STEPS_UNDER_WAY = 1_000_000


def _require_sound(content: Mapping[str, Any]) -> None:
    for name in content.keys() & _TYPES.keys():
        if type(content[name]) is not _TYPES[name]:
            raise ValueError(f"{name}: expected {_TYPES[name].__name__}, got {content[name]!r:.80}")
    limiter, taken = content.get("limiter", {}), content.get("env_steps", 0)
    counts = {**limiter, **content.get("totals", {}), "env_steps of the run": taken}
    counts["params_updates"] = content.get("params_updates", 0)
    for name, value in counts.items():
        if type(value) not in (int, float) or not 0 <= value < _LARGEST:
            raise ValueError(f"{name}: expected 0 to {_LARGEST:,}, got {value!r:.80}")
    # Acting would wait for ever.
    if (counted := limiter.get("env_steps", 0)) > taken + _STEPS_UNDER_WAY:
        raise ValueError(f"the limiter has counted {counted:,} steps of {taken:,}")


class _Meta(dict[str, Any]):
    # A checkpoint may be anybody's: a missing key is one line for its user.

    def __init__(self, path: Path, content: dict[str, Any]):
        super().__init__(content)
        self._path = path

    def __missing__(self, key: str) -> NoReturn:
        raise CheckpointError(f"{self._path}: expected `{key}`, which is missing")


# The spec of the environment, among the records


def encode_spec(spec: EnvSpec) -> str:
    """A text for checkpoints; equal specs give equal texts."""
    # Sorted: the keys of a protobuf map have no order.
    return json_format.MessageToJson(spec_message(spec), indent=None, sort_keys=True)


def saved_spec(text: str) -> EnvSpec:
    """Inverse of `encode_spec`. Raises CheckpointError: it may be an older seedrl's."""
    try:
        return spec_of(json_format.Parse(text, seedrl_pb2.EnvSpec()))
    # A file may hold anything; protobuf raises an AttributeError for what is no text.
    except (json_format.ParseError, ValueError, AttributeError, RecursionError) as error:
        raise CheckpointError(
            f"expected a readable env_spec; {in_one_line(error):.80}; it may be of another wire "
            f"version (this one is {MAJOR}.{MINOR}): start a new run, or use its seedrl"
        ) from error
