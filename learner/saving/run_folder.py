"""The folder of a run: who owns it, and what is written there at its start."""

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from learner.saving.folder_lock import lock, remove_ours
from seedrl import config_json, run_files
from seedrl.checkpoints import Checkpoint, best, take_over
from seedrl.config import Config
from seedrl.errors import AddressInUseError, CheckpointError, ConfigError, UserError

_logger = logging.getLogger(__name__)

Resume = Literal["auto", "never", "must"]


class RunFolder:
    """Holds the lock on a run's folder: two learners in one would destroy each other's checkpoints.

    Raises AddressInUseError if another learner holds it, ConfigError if it cannot be written to.

    Attributes:
      path: of the folder, absolute and without `..`.
      has_begun: whether this session trains, or did; the run sets it.
      is_begun_anew: whether what the folder holds is of another attempt, as the user has said.
    """

    def __init__(self, path: Path):
        self.path = _normal(path)
        self.has_begun = False
        self.is_begun_anew = False
        self._is_new = not self.path.exists()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._descriptor = lock(self.path)
        except AddressInUseError:
            raise
        except OSError as error:
            raise ConfigError(
                f"--workdir: cannot write in {path} ({error.strerror}); choose another folder"
            ) from error

    @property
    def checkpoints(self) -> Path:
        """Where checkpoints are."""
        return self.path / "checkpoints"

    @property
    def metrics(self) -> Path:
        """The metrics of all sessions of the run, one JSON object a line."""
        return self.path / run_files.METRICS

    def checkpoint(self, resume: Resume) -> Checkpoint | None:
        """What to resume from.

        Raises CheckpointError if there must be something and is not, ConfigError if it is of an
        earlier version.
        """
        self.is_begun_anew = resume == "never"
        found = None if self.is_begun_anew else take_over(self.checkpoints)
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
        text = config_json.to_json(config) + "\n"
        _replace(self.path / run_files.CONFIG, text.encode())

    def record_command(self, command: str) -> int:
        """Appends a command line to those before; returns the number of this session, from 1."""
        with (self.path / run_files.COMMANDS).open("a+") as file:
            file.write(command.replace("\n", " ") + "\n")
            file.flush()
            os.fsync(file.fileno())
            file.seek(0)
            return len(file.readlines())

    @contextlib.contextmanager
    def unchanged_until_begun(self) -> Iterator[None]:
        """What ends inside before it has begun leaves what the folder says of the run as it was.

        That is its configuration, its command lines and with them the number of the next session,
        and an earlier session's status and metrics, which `--resume never` would declare another
        attempt's. A folder that was made for a run which is then refused, or
        stopped, is removed. Raises ConfigError if what is there cannot be read.
        """
        before = {
            name: self._content(name)
            for name in (run_files.CONFIG, run_files.COMMANDS, run_files.STATUS)
        }
        if before[run_files.STATUS] is None:
            del before[run_files.STATUS]  # the only place that says why a first session has ended
        metrics_bytes = _size(self.metrics)
        is_defect = True
        try:
            yield
            is_defect = False
        except UserError:
            is_defect = False
            raise
        finally:
            if not self.has_begun:
                for name, content in before.items():
                    _put_back(self.path / name, content)
                _cut(self.metrics, metrics_bytes)
                if self._is_new and not is_defect:
                    with contextlib.suppress(OSError):
                        remove_ours(self.path)

    def close(self) -> None:
        """Lets others have the folder."""
        os.close(self._descriptor)

    def _content(self, name: str) -> bytes | None:
        try:
            return _content(self.path / name)
        except OSError as error:
            raise ConfigError(
                f"--workdir: cannot read {self.path / name} ({error.strerror}); choose another "
                "folder"
            ) from error


def _normal(path: Path) -> Path:
    absolute = path.absolute()
    shorter = Path(os.path.normpath(absolute))
    # Behind a link `..` is another folder than the one before it.
    return shorter if shorter.resolve() == absolute.resolve() else absolute.resolve()


def _content(path: Path) -> bytes | None:
    """What the file holds; None if there is none."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _put_back(path: Path, content: bytes | None) -> None:
    """Makes the file what it was. An error is logged: what ended the run is the one to raise."""
    try:
        if content is None:
            path.unlink(missing_ok=True)
        elif content != _content(path):
            _replace(path, content)
    except OSError as error:
        _logger.error("%s could not be put back as it was: %s", path, error.strerror)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _cut(path: Path, size: int) -> None:
    """Takes back what was appended to the file. An error is logged, as by `_put_back`."""
    try:
        if _size(path) > size:
            os.truncate(path, size)
    except OSError as error:
        _logger.error("%s could not be put back as it was: %s", path, error.strerror)


def _replace(path: Path, content: bytes) -> None:
    """Writes the file whole or not at all: a full disk leaves what was there."""
    new = path.with_name(f".{path.name}.new")
    try:
        new.write_bytes(content)
        os.replace(new, path)
    except OSError:
        new.unlink(missing_ok=True)
        raise
