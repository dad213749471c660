"""The manifest of a directory: size and SHA-256 of every file in it, written last.

Orbax restores flipped bits in array data without noticing them. With a manifest a reader knows that
it reads what was written, and that all of it was. It has a SHA-256 of itself, so that damage to it
is not taken for damage to what it lists.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

NAME = "manifest.json"


def write(root: Path, known: Mapping[str, Any] | None = None) -> None:
    """Writes `root/manifest.json` and makes everything in `root` durable (fsync).

    `known`: entries of files that others have written, and made durable. Raises OSError if the disk
    refuses.
    """
    known = known or {}
    paths = [path for path in sorted(root.rglob("*")) if path.is_file()]
    own = [path for path in paths if path.relative_to(root).as_posix() not in known]
    files = dict(sorted((entries(root, own) | dict(known)).items()))
    content = {"files": files, "sha256": _sum(files)}
    (root / NAME).write_text(json.dumps(content, indent=1))
    sync(root / NAME)
    for path in sorted(root.rglob("*")):
        if path.is_dir():
            sync(path)
    sync(root)


def entries(root: Path, paths: Iterable[Path]) -> dict[str, Any]:
    """What a manifest says of these files below `root`, which it makes durable. Raises OSError."""
    found: dict[str, Any] = {}
    for path in paths:
        found[path.relative_to(root).as_posix()] = [path.stat().st_size, _sha256(path)]
        sync(path)
    return found


def sync(path: Path) -> None:
    """Returns when the file's content, or the directory's list of names, is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def damage(root: Path) -> str | None:
    """What is wrong with the first damaged file of `root`, in one line; None if all are intact.

    A file that the manifest does not list is damage, too: nobody knows what it should be.
    """
    try:
        listed = _listed((root / NAME).read_bytes())
        # A learner that is running may delete the folder meanwhile.
        paths = [path for path in root.rglob("*") if path.is_file()]
    # Whatever the bytes are: nested deep, they are more than the parser's stack holds.
    except (OSError, ValueError, RecursionError) as error:
        return f"{root / NAME}: expected a list of files, got {type(error).__name__}: {error}"
    there = {path.relative_to(root).as_posix() for path in paths}
    if unknown := sorted(there - {file.name for file in listed} - {NAME}):
        return f"{root / unknown[0]}: expected no such file, for {NAME} does not list it"
    return next((problem for file in listed if (problem := _damage(root, file))), None)


class _File(NamedTuple):
    name: str
    size: int
    digest: str


def _damage(root: Path, file: _File) -> str | None:
    path, size, digest = root / file.name, file.size, file.digest
    try:
        actual_size = path.stat().st_size
        if actual_size != size:
            return f"{path}: expected {size} bytes, got {actual_size}"
        actual = _sha256(path)
    except OSError as error:
        return f"{path}: expected {size} bytes, got {type(error).__name__}: {error.strerror}"
    if actual != digest:
        return f"{path}: expected SHA-256 {_part(digest, actual)}, got {_part(actual, digest)}"
    return None


def _listed(data: bytes) -> list[_File]:
    """The files that a manifest lists. ValueError if it is none, or not as it was written."""
    content = json.loads(data)
    if not isinstance(content, dict) or set(content) not in ({"files"}, {"files", "sha256"}):
        raise ValueError("it is no object with `files` and `sha256`")
    files = content["files"]
    if not isinstance(files, dict) or not files:
        raise ValueError("`files` is no object, or empty")
    # Runs of before have none.
    if "sha256" in content and content["sha256"] != (actual := _sum(files)):
        raise ValueError(f"`sha256` says {content['sha256']!r:.80}, but it is {actual}")
    return [_file(name, entry) for name, entry in files.items()]


def _file(name: str, entry: Any) -> _File:
    match entry:
        case [int(size), str(digest)] if not isinstance(size, bool):
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts or name == NAME:
                raise ValueError(f"{name!r:.80} is no file of this folder")
            return _File(name, size, digest)
    raise ValueError(f"{name!r:.80} has no size and digest")


def _sum(files: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _part(digest: str, other: str) -> str:
    """16 digits of a digest, the first in which it differs from another one among them."""
    pairs = enumerate(zip(digest, other, strict=False))
    begin = next((place for place, (here, there) in pairs if here != there), 0) // 16 * 16
    return "…" * (begin > 0) + digest[begin : begin + 16] + "…" * (begin + 16 < len(digest))
