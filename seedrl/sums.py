"""The sums of a checkpoint: size and SHA-256 of every file in its folder, written last.

    sums.json   {"format": 3, "step": 12000, "files": {name: [bytes, digest]}, "sha256": ...}

Orbax restores flipped bits in array data without noticing them. With the sums a reader can tell
that it reads the bytes that were written, all of them, and for which step.
"""

import hashlib
import json
import os
from collections.abc import Collection, Iterable, Mapping
from io import BufferedReader
from pathlib import Path
from typing import Any, NoReturn

from seedrl.errors import CheckpointError, in_one_line
from seedrl.run_files import open_regular, read_regular

FORMAT = 3
NAME = "sums.json"
_EARLIER = "manifest.json"  # of formats 1 and 2


def damage(path: Path, parts: Collection[str] = ()) -> str | None:
    """One line about the first damaged file of a checkpoint; None if it is intact.

    Verifies only `parts`, some of its files and folders; by default all of them. Raises
    CheckpointError if it may not be read, or has another format.
    """
    listed = path / NAME
    if not listed.exists() and (path / _EARLIER).is_file():
        raise _other_format(path, "1 or 2")
    try:
        return _damage(path, parts)
    except PermissionError as error:
        refuse_reading(path, error)
    except CheckpointError:
        raise
    # The sums may hold anything: deeply nested JSON exceeds the parser's stack.
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        kind = type(error).__name__
        return f"{listed}: expected sums of all files, got {kind}: {in_one_line(error)}"


def _damage(path: Path, parts: Collection[str]) -> str | None:
    content = json.loads(read_regular(path / NAME))
    # Before anything else: damage to the sums must not be reported as damage to a listed file.
    if content["sha256"] != (actual := _sum_of(content)):
        raise ValueError(f"SHA-256 {actual} of themselves, {content['sha256']!r:.80} is listed")
    if content["format"] != FORMAT:
        raise _other_format(path, content["format"])
    if content["step"] != int(path.name.split(".")[0]):
        raise ValueError(f"those of step {content['step']!r:.80}")
    files = content["files"]
    for name in sorted({*files, *_files(path)} - {NAME}):
        if parts and name.split("/")[0] not in parts:
            continue
        if name not in files:
            return f"{path / name}: expected no such file, because {NAME} does not list it"
        size, digest = files[name]
        try:
            with open_regular(path / name) as file:
                actual_size, actual = os.fstat(file.fileno()).st_size, _sha256(file)
        except FileNotFoundError:
            return f"{path / name}: expected {size} bytes, got no such file"
        if [actual_size, actual] != [size, digest]:
            return (
                f"{path / name}: expected {size} bytes of SHA-256 {digest}, "
                f"got {actual_size} bytes of {actual}"
            )
    return None


def _other_format(path: Path, got: object) -> CheckpointError:
    return CheckpointError(
        f"expected checkpoint format {FORMAT} in {path}, got {got}; use the version of seedrl that "
        "wrote it, or start a new workdir"
    )


def refuse_reading(path: Path, error: OSError) -> NoReturn:
    """Raises CheckpointError: a file that may not be read is not a damaged one."""
    raise CheckpointError(
        f"may not read {error.filename or path}: it belongs to another user; ask for permission or "
        "for a copy"
    ) from error


def _files(root: Path) -> list[str]:
    # A link to a folder counts as a file, which it must not be.
    found = [path for path in root.rglob("*") if path.is_symlink() or not path.is_dir()]
    return sorted(path.relative_to(root).as_posix() for path in found)


def write(root: Path, step: int, known: Mapping[str, Any]) -> None:
    """Writes the sums and makes everything in `root` durable (fsync). Raises OSError.

    `known`: entries of files that other processes have written, and made durable.
    """
    own = [root / name for name in _files(root) if name not in known]
    files = dict(sorted((entries(root, own) | dict(known)).items()))
    content = {"format": FORMAT, "step": step, "files": files}
    (root / NAME).write_text(json.dumps({**content, "sha256": _sum_of(content)}, indent=1))
    sync(root / NAME)
    for path in (*(path for path in root.rglob("*") if path.is_dir()), root):
        sync(path)


def entries(root: Path, paths: Iterable[Path]) -> dict[str, Any]:
    """The entries of these files below `root`, which it makes durable. Raises OSError."""
    found: dict[str, Any] = {}
    for path in paths:
        with open_regular(path) as file:
            size = path.stat().st_size
            found[path.relative_to(root).as_posix()] = [size, _sha256(file)]
        sync(path)
    return found


def _sum_of(content: Mapping[str, Any]) -> str:
    listed = {key: value for key, value in content.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(listed, sort_keys=True).encode()).hexdigest()


def _sha256(file: BufferedReader) -> str:
    return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Returns when the file's content, or the directory's list of names, is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
