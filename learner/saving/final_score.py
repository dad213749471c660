"""The final score of a run: that of its last parameters, over episodes played for nothing else.

A score that decided on something, such as which parameters are the best or whether the run may
end, is too high on average; this one did not.
"""

import json
import os
from pathlib import Path
from typing import NamedTuple

from seedrl import run_files


class FinalScore(NamedTuple):
    """A round that was played after a run.

    Attributes:
      mean: of the returns.
      episodes: how many.
      updates: of the run when it was played; confirmed parameters may be of fewer.
      greedy: whether they were played without exploration.
    """

    mean: float
    episodes: int
    updates: int
    greedy: bool


def write_final_score(folder: Path, score: FinalScore) -> None:
    """Keeps it in the folder of the run, whole or not at all. Raises OSError."""
    path = folder / run_files.FINAL_SCORE
    new = path.with_name(f".{path.name}.new")
    new.write_text(json.dumps(score._asdict()) + "\n")
    os.replace(new, path)


def read_final_score(folder: Path) -> FinalScore | None:
    """What is kept in the folder of a run; None without, or if the run was trained on since."""
    try:
        kept = FinalScore(**json.loads((folder / run_files.FINAL_SCORE).read_text()))
    except (OSError, ValueError, TypeError):
        return None
    return kept if _updates(folder) in (None, kept.updates) else None


def _updates(folder: Path) -> int | None:
    """Of the run by now; None if that is not known."""
    try:
        status = json.loads((folder / run_files.STATUS).read_text())
    except (OSError, ValueError):
        return None
    return status.get("updates") if isinstance(status, dict) else None
