"""Which checkpoint of a run is meant: the newest, that of a step, or the best.

checkpoints/000000012000/   one of the newest; holds all that a run resumes with
            best/000000009000/   params and updates of the round that scored highest
"""

from pathlib import Path

from seedrl.errors import CheckpointError
from seedrl.storage import checkpoints
from seedrl.storage.checkpoints import Checkpoint


def choose(
    workdir: Path, *, step: int | None = None, is_best: bool = False, or_best: bool = False
) -> Checkpoint:
    """An intact checkpoint in the folder of a run: by default the newest.

    Args:
      workdir: the run's folder.
      step: that of this very step (updates), which may be the best one.
      is_best: the best one; then `step` is not looked at.
      or_best: the best one will do where no other is saved.

    Raises CheckpointError if there is none such.
    """
    directory = workdir / "checkpoints"
    if is_best:
        found, missing = best(workdir), "; no round of evaluation has ended in this run"
    elif step is not None:
        alone = best(workdir)
        return alone if alone and alone.step == step else checkpoints.find(directory, step)
    else:
        found, missing = checkpoints.latest(directory), "; train first"
        if found is None and or_best:
            found = best(workdir)
        if found is None and best(workdir) is not None:
            missing = "; its best parameters alone are saved: choose these (--best, or best=True)"
    if found is None:
        raise CheckpointError(f"expected a checkpoint in {directory}, found none{missing}")
    return found


def best(workdir: Path) -> Checkpoint | None:
    """The best checkpoint, or None. Raises CheckpointError if it is damaged."""
    return checkpoints.latest(best_directory(workdir))


def holds_best(checkpoint: Checkpoint) -> bool:
    """Whether it is a best checkpoint, which holds parameters alone and what they scored."""
    return "evaluation" in checkpoint.meta


def updates_of_params(checkpoint: Checkpoint) -> int:
    """After how many updates its parameters acted.

    Of a run that has confirmed its target the newest checkpoint holds what was confirmed, beside
    an optimizer and counts that are later ones.
    """
    return int(checkpoint.meta.get("params_updates", checkpoint.step))


def best_return(checkpoint: Checkpoint) -> float:
    """What the best checkpoint has scored: the mean of its round."""
    return float(checkpoint.meta["evaluation"]["mean_return"])


def best_directory(workdir: Path) -> Path:
    """Where the best checkpoint is."""
    return workdir / "checkpoints" / "best"


def run_of_best(directory: Path) -> Path | None:
    """The run whose best checkpoint is in this directory; None if it is no such place."""
    run = directory.absolute().parent.parent
    return run if best_directory(run) == directory.absolute() else None
