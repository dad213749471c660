"""The manifest of a directory: size and SHA-256 of every file in it, written last.

Orbax restores flipped bits in array data without noticing them. With a manifest a reader knows that
it reads what was written, and that all of it was.
"""

import hashlib
import json
import os
from pathlib import Path

NAME = "manifest.json"


def write(root: Path) -> None:
    """Writes `root/manifest.json` and makes everything in `root` durable (fsync).

    Raises OSError if the disk refuses.
    """
    files = {}
    for path in sorted(root.rglob("*")):
        if path.is_file():
            files[path.relative_to(root).as_posix()] = [path.stat().st_size, _sha256(path)]
            sync(path)
    (root / NAME).write_text(json.dumps({"files": files}, indent=1))
    sync(root / NAME)
    for path in sorted(root.rglob("*")):
        if path.is_dir():
            sync(path)
    sync(root)


def sync(path: Path) -> None:
    """Returns when the file's content, or the directory's list of names, is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def damage(root: Path) -> str | None:
    """What is wrong with the first damaged file of `root`, in one line; None if all are intact."""
    try:
        files = json.loads((root / NAME).read_bytes())["files"].items()
        entries = [(str(name), int(size), str(digest)) for name, (size, digest) in files]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"{root / NAME}: expected a list of files, got {type(error).__name__}: {error}"
    for name, size, digest in entries:
        path = root / name
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


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _part(digest: str, other: str) -> str:
    """16 digits of a digest, the first in which it differs from another one among them."""
    pairs = enumerate(zip(digest, other, strict=False))
    begin = next((place for place, (here, there) in pairs if here != there), 0) // 16 * 16
    return "…" * (begin > 0) + digest[begin : begin + 16] + "…" * (begin + 16 < len(digest))
