"""The folder of a run: who owns it, and what is written there at its start."""

import contextlib
import fcntl
import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from learner.reporting import status
from learner.saving import folder_lock
from seedrl import config_json
from seedrl.config import Config
from seedrl.errors import CheckpointError, ConfigError, UserError
from seedrl.storage.checkpoints import Checkpoint, take_over
from seedrl.storage.chosen import best

_logger = logging.getLogger(__name__)

Resume = Literal["auto", "never", "must"]


class RunFolder:
    """Holds the lock on a run's folder: two learners in one would destroy each other's checkpoints.

    Raises AddressInUseError if another learner holds it, ConfigError if it cannot be written to.

    Attributes:
      path: of the folder.
      has_begun: whether this session trains, or did; set by whoever runs it.
    """

    def __init__(self, path: Path):
        self.path = path.absolute()
        self.has_begun = False
        self._is_new = not self.path.exists()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(
                self.path / folder_lock.FILE_NAME, os.O_CREAT | os.O_RDWR, 0o600
            )
        except OSError as error:
            raise ConfigError(
                f"--workdir: cannot write in {path} ({error.strerror}); choose another folder"
            ) from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.close()
            raise folder_lock.in_use(self.path) from error

    @property
    def checkpoints(self) -> Path:
        """Where checkpoints are."""
        return self.path / "checkpoints"

    @property
    def metrics(self) -> Path:
        """The metrics of all sessions of the run, one JSON object a line."""
        return self.path / "metrics.jsonl"

    def checkpoint(self, resume: Resume) -> Checkpoint | None:
        """What to resume from.

        Raises CheckpointError if there must be something and is not, ConfigError if it is of an
        earlier version.
        """
        found = None if resume == "never" else take_over(self.checkpoints)
        if found is None and resume == "must":
            raise CheckpointError(
                f"--resume must: expected a checkpoint in {self.checkpoints}, found none; check "
                "--workdir or use --resume auto"
            )
        if found is not None:
            config_json.check_names(found.meta["config"])
        return found

    def best(self) -> Checkpoint | None:
        """The best checkpoint; None also if it is damaged, which is logged as an error."""
        try:
            return best(self.path)
        except CheckpointError as error:
            _logger.error("no best checkpoint until the next score: %s", error)
            return None

    def record_config(self, config: Config) -> None:
        """Writes the resolved configuration: once it is known to fit what the folder holds."""
        (self.path / config_json.FILE_NAME).write_text(config_json.to_json(config) + "\n")

    def record_command(self, command: str) -> int:
        """Appends a command line to those before; returns the number of this session, from 1."""
        with (self.path / "command.txt").open("a+") as file:
            file.write(command.replace("\n", " ") + "\n")
            file.flush()
            os.fsync(file.fileno())
            file.seek(0)
            return len(file.readlines())

    @contextlib.contextmanager
    def unchanged_until_begun(self) -> Iterator[None]:
        """What ends inside before it has begun leaves what the folder says of the run as it was.

        A folder that was made for a run which is then refused is removed.
        """
        saved, said = self.path / config_json.FILE_NAME, self.path / status.FILE_NAME
        before = {path: path.read_bytes() for path in (saved, said) if path.exists()}
        try:
            yield
        except UserError:
            if self._is_new and not self.has_begun:
                shutil.rmtree(self.path, ignore_errors=True)
            raise
        finally:
            if not self.has_begun:
                for path, content in before.items():
                    with contextlib.suppress(OSError):  # a full disk is what has ended it, maybe
                        path.write_bytes(content)
                if saved not in before:
                    saved.unlink(missing_ok=True)

    def close(self) -> None:
        """Lets others have the folder."""
        os.close(self._descriptor)
