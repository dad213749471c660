"""Where a learner serves that was told no address: a socket that only its own user can reach."""

import dataclasses
import hashlib
import os
import stat
import tempfile
from pathlib import Path

from seedrl.config import Config
from seedrl.errors import ConfigError

_LONGEST_FOLDER_BYTES = 60  # of the 107 bytes that a socket's path may have


def with_address(config: Config, workdir: Path) -> Config:
    """The configuration with a private address, if it has none; see `private_address`."""
    if config.serving.bind:
        return config
    serving = dataclasses.replace(config.serving, bind=private_address(workdir))
    return dataclasses.replace(config, serving=serving)


def private_address(workdir: Path) -> str:
    """`unix:/path` in a folder of this user's alone: the same for each learner of the run folder.

    So env servers find a learner again that was started again. Raises ConfigError if the folder is
    somebody else's, or open to others.
    """
    parent = tempfile.gettempdir()
    if len(os.fsencode(parent)) > _LONGEST_FOLDER_BYTES:
        parent = "/tmp"
    folder = Path(parent) / f"seedrl-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise ConfigError(
            f"cannot make {folder} for the learner's socket ({error.strerror}); give --bind"
        ) from error
    # Whoever made it first could otherwise stand between the learner and its env servers.
    is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    if not is_own or found.st_mode & 0o077:
        raise ConfigError(
            f"expected {folder} to be a folder of this user's with mode 0700, for the learner's "
            "socket; remove it, or give --bind unix:/path in a folder of your own"
        )
    name = hashlib.sha256(os.fsencode(workdir.resolve())).hexdigest()[:16]
    return f"unix:{folder}/{name}"
