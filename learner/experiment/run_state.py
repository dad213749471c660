"""How far a planned run is, from the files of its folder alone: a kill of us loses nothing."""

import json
import shlex
from pathlib import Path
from typing import Literal

from learner.experiment.grid import PlannedRun
from learner.saving.folder_lock import check_free
from learner.saving.run_records import read_final_score, read_run
from seedrl import run_files
from seedrl.errors import AddressInUseError, ConfigError

Step = Literal["train", "score"]

# What may grow: a run of fewer steps is trained on.
_MAY_GROW = "--learning.total-steps"
_NOT_OF_THE_GRID = ("--workdir", "--resume")


def next_step(folder: Path, run: PlannedRun, *, episodes: int) -> Step | None:
    """What is left to do for a run: to train it, or to play its final score; None if nothing.

    Args:
      folder: of the run; it need not be there.
      episodes: of its final score, at least.
    """
    command = _command(folder)
    if command is None or _words(command) != [*run.words]:
        return "train"
    if read_run(folder).state != "finished":
        return "train"
    kept = read_final_score(folder)
    return None if kept is not None and kept.episodes >= episodes else "score"


def has_begun(folder: Path) -> bool:
    """Whether it is the folder of a run that has begun to train, in whatever session."""
    return _command(folder) is not None


def is_in_use(folder: Path) -> bool:
    """Whether a learner is using it, such as one that saves after its experiment was killed."""
    try:
        check_free(folder)
    except AddressInUseError:
        return True
    return False


def check_same(folder: Path, run: PlannedRun) -> None:
    """Raises ConfigError if the folder holds a run of other options than the planned one."""
    command = _command(folder)
    if command is None:
        return
    words = _words(command), [*run.words]
    before, now = (_without(each, (_MAY_GROW,)) for each in words)
    if before != now or _shrinks(folder, *words):
        raise ConfigError(
            f"{folder}: expected the run `seedrl train {shlex.join(run.words)}`, found that of "
            f"`{command}`; choose another --workdir, or remove that folder"
        )


def _shrinks(folder: Path, before: list[str], now: list[str]) -> bool:
    """Whether fewer steps are planned than the run has, or maybe fewer: no number is given now."""
    if _MAY_GROW not in now:
        return _MAY_GROW in before
    planned = int(now[now.index(_MAY_GROW) + 1])
    if _MAY_GROW in before:
        return planned < int(before[before.index(_MAY_GROW) + 1])
    try:
        saved = json.loads((folder / run_files.CONFIG).read_text())
        return planned < int(saved["config"]["learning"]["total_steps"])
    except (OSError, ValueError, KeyError, TypeError):
        return False  # `seedrl train` says what is wrong with it


def _command(folder: Path) -> str | None:
    """What the run was last started with."""
    try:
        lines = (folder / run_files.COMMANDS).read_text().splitlines()
    except OSError:
        return None
    return lines[-1] if lines else None


def _words(command: str) -> list[str]:
    """Of `seedrl train`, as a grid plans them."""
    return _without(shlex.split(command)[2:], _NOT_OF_THE_GRID)


def _without(words: list[str], flags: tuple[str, ...]) -> list[str]:
    """Without these flags and the value of each."""
    pairs = zip(words, ["", *words], strict=False)
    return [word for word, before in pairs if word not in flags and before not in flags]
