"""The directory of a run: which process owns it, and what is written there at its start."""

import logging
import os
import shlex
from pathlib import Path
from typing import Literal

from learner.checkpoints.run_records import commands_of, words_given
from learner.processes.locks import lock
from learner.report.json_lines import replace_file
from seedrl import config_io, run_files
from seedrl.checkpoints import Checkpoint, best_directory, latest, supersede
from seedrl.config import Config
from seedrl.errors import CheckpointError

_logger = logging.getLogger(__name__)

Resume = Literal["auto", "never", "must"]


class RunFolder:
    """Holds the lock on a run's directory. Raises AddressInUseError, ConfigError."""

    # Two learners in one would destroy each other's checkpoints.

    def __init__(self, path: Path, held: int | None = None):
        """`held`: the lock of a caller who has taken it already, and gives it back."""
        self.path = path.absolute()
        # What the folder holds is of another attempt, as the user has said.
        self.is_begun_anew = False
        # What it holds was learned in another environment.
        self.is_other_environment = False
        self.checkpoints = self.path / "checkpoints"
        # Of all sessions of the run, one JSON object a line.
        self.metrics = self.path / run_files.METRICS
        self._own = lock(self.path) if held is None else None

    def checkpoint(self, resume: Resume) -> Checkpoint | None:
        """What to resume from. Raises CheckpointError if it must be there, or is unsound."""
        self.is_begun_anew = resume == "never"
        found = None if self.is_begun_anew else latest(self.checkpoints)
        if found is None and resume == "must":
            config, again = self.path / run_files.CONFIG, ""
            if config.exists():  # of a run that has never saved
                words = ["seedrl", "train", str(config), "--workdir", str(self.path)]
                # The parameters that the run started with: only its command names them.
                for line in commands_of(self.path)[-1:]:
                    words += words_given(line, "--init-from", "--init-from-partial")
                again = f": {shlex.join(words)}"
            raise CheckpointError(
                f"expected a checkpoint to resume from in {self.checkpoints}, found none; check "
                f"the directory, or start the run again by --resume auto{again}"
            )
        if found is not None:
            # Damaged ones: counted as kept, they would have an older intact one deleted.
            supersede(self.checkpoints, after=found.path)
        return found

    def best(self) -> Checkpoint | None:
        """The best checkpoint; None also if it is damaged, which is logged as an error."""
        try:
            return latest(best_directory(self.path))
        except CheckpointError as error:
            _logger.error("no best checkpoint until the next score: %s", error)
            return None

    def record_config(self, config: Config) -> None:
        """Writes the resolved configuration: once it is known to fit what the folder holds."""
        if self.is_begun_anew:
            # Now, and not at the first save: a session that is killed before it must not leave the
            # last attempt's to be resumed, nor its score, which might have as many updates.
            supersede(self.checkpoints)
            supersede(best_directory(self.path))
            (self.path / run_files.FINAL_SCORE).unlink(missing_ok=True)
        # Last: where that is refused, the attempt before keeps its configuration.
        replace_file(self.path / run_files.CONFIG, f"{config_io.to_json(config)}\n")

    def record_command(self, command: str) -> int:
        """Appends a command line to those before; returns the number of this session, from 1."""
        line = os.fsencode(command.replace("\n", " ")) + b"\n"
        path = self.path / run_files.COMMANDS
        with run_files.naming(path), run_files.open_to_append(path) as file:
            file.seek(0)
            number = len(lines := file.readlines()) + 1
            # After half a line, which a full disk leaves, on a line of its own.
            if lines and not lines[-1].endswith(b"\n"):
                line = b"\n" + line
            while line:  # a disk that has room for a part refuses the rest by an error
                line = line[file.write(line) :]
            # Durable before the session starts: its number is in the seeds of its environments, and
            # no other session may have the same.
            os.fsync(file.fileno())
            return number

    def close(self) -> None:
        if self._own is not None:
            os.close(self._own)
