"""The sums of a checkpoint: size and SHA-256 of every file in its folder, written last.

    sums.json   {"format": 3, "step": 12000, "files": {name: [bytes, digest]}, "sha256": ...}

Orbax restores flipped bits in array data without noticing them. With the sums a reader knows that
it reads what was written, that all of it was, and as which step.
"""

import errno
import hashlib
import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from seedrl.errors import CheckpointError, in_one_line
from seedrl.run_files import open_regular, read_regular

FORMAT = 3
NAME = "sums.json"
_EARLIER = "manifest.json"  # of formats 1 and 2


def damage(path: Path, parts: Collection[str] = ()) -> str | None:
    """What is wrong with the first damaged file of a checkpoint, in one line; None if it is intact.

    A file that the sums do not list is damage, too: nothing shows what it should be.

    Args:
      path: of the checkpoint.
      parts: looks at these of its files and folders; by default at all of them.

    Raises CheckpointError if it may not be read, or is of another format.
    """
    try:
        return _damage(path, parts)
    except PermissionError as error:
        refuse_reading(path, error)


def _damage(path: Path, parts: Collection[str]) -> str | None:
    listed = path / NAME
    try:
        content = _checked(read_regular(listed))
        there = set(_regular_files(path))
    except PermissionError:
        raise
    # Whatever the bytes are: nested deep, they are more than the parser's stack holds.
    except (OSError, ValueError, RecursionError) as error:
        if (path / _EARLIER).is_file() and not listed.exists():
            raise _other_format(path, "1 or 2") from error
        return (
            f"{listed}: expected a list of files, got {type(error).__name__}: {in_one_line(error)}"
        )
    if content["format"] != FORMAT:
        raise _other_format(path, content["format"])
    if content["step"] != int(path.name.split(".")[0]):
        return f"{listed}: expected the step of {path.name}, got {content['step']}; was it renamed?"
    for name in sorted(there - {NAME} - set(content["files"])):
        if _is_part(name, parts):
            return f"{path / name}: expected no such file, because {NAME} does not list it"
    for name, (size, digest) in content["files"].items():
        if _is_part(name, parts) and (problem := _damaged_file(path / name, size, digest)):
            return problem
    return None


def _other_format(path: Path, got: object) -> CheckpointError:
    return CheckpointError(
        f"expected checkpoint format {FORMAT} in {path}, got {got}; use the version of seedrl that "
        "wrote it, or start a new workdir"
    )


def refuse_reading(path: Path, error: OSError) -> NoReturn:
    raise CheckpointError(
        f"may not read {error.filename or path}: it belongs to another user; ask for permission or "
        "for a copy"
    ) from error


def _is_part(name: str, parts: Collection[str]) -> bool:
    return not parts or name.split("/")[0] in parts


def _regular_files(root: Path) -> Iterator[str]:
    """Names of all files below `root`. Raises OSError for a link, a FIFO or the like."""

    def refuse(error: OSError) -> NoReturn:
        raise error

    for folder, folders, names in os.walk(root, onerror=refuse):
        for path in (Path(folder, name) for name in (*folders, *names)):
            if path.is_symlink() or not (path.is_file() or path.is_dir()):
                raise OSError(errno.EINVAL, "expected a regular file", str(path))
        yield from (Path(folder, name).relative_to(root).as_posix() for name in names)


def _damaged_file(path: Path, size: int, digest: str) -> str | None:
    try:
        if (actual_size := path.stat().st_size) != size:
            return f"{path}: expected {size} bytes, got {actual_size}"
        actual = _sha256(path)
    except PermissionError:
        raise
    except OSError as error:
        return f"{path}: expected {size} bytes, got {type(error).__name__}: {error.strerror}"
    return None if actual == digest else f"{path}: expected SHA-256 {digest}, got {actual}"


def _checked(data: bytes) -> dict[str, Any]:
    """What a file of sums says. ValueError if it is none, or not as it was written."""
    content = json.loads(data)
    if not isinstance(content, dict) or set(content) != {"format", "step", "files", "sha256"}:
        raise ValueError("it is no object with `format`, `step`, `files` and `sha256`")
    if content["sha256"] != (actual := _sum_of(content)):
        raise ValueError(f"`sha256` says {content['sha256']!r:.80}, but it is {actual}")
    files = content["files"]
    if not isinstance(files, dict) or not files or type(content["step"]) is not int:
        raise ValueError("`files` is no object or empty, or `step` is no number")
    for name, entry in files.items():
        is_plain = not name.startswith("/") and ".." not in name.split("/") and name != NAME
        match entry:
            case [int(size), str()] if is_plain and not isinstance(size, bool):
                continue
        raise ValueError(f"{name!r:.80} is no file of this folder, or has no size and digest")
    return content


def write(root: Path, step: int, known: Mapping[str, Any]) -> None:
    """Writes the sums and makes everything in `root` durable (fsync).

    `known`: entries of files that others have written, and made durable. Raises OSError if the disk
    refuses.
    """
    own = [root / name for name in sorted(_regular_files(root)) if name not in known]
    files = dict(sorted((entries(root, own) | dict(known)).items()))
    content = {"format": FORMAT, "step": step, "files": files}
    (root / NAME).write_text(json.dumps({**content, "sha256": _sum_of(content)}, indent=1))
    sync(root / NAME)
    for path in (*(path for path in root.rglob("*") if path.is_dir()), root):
        sync(path)


def entries(root: Path, paths: Iterable[Path]) -> dict[str, Any]:
    """What the sums say of these files below `root`, which it makes durable. Raises OSError."""
    found: dict[str, Any] = {}
    for path in paths:
        found[path.relative_to(root).as_posix()] = [path.stat().st_size, _sha256(path)]
        sync(path)
    return found


def _sum_of(content: Mapping[str, Any]) -> str:
    """SHA-256 of the sums themselves: damage to them is not taken for damage to what they list."""
    listed = {key: value for key, value in content.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(listed, sort_keys=True).encode()).hexdigest()


def _sha256(path: Path) -> str:
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Returns when the file's content, or the directory's list of names, is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
