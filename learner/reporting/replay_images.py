"""Sampled sequences of a saved replay as an image: `python -m learner.reporting.replay_images RUN`.

For looking at what is learned from with one's own eyes: each row of the picture is one sequence,
observations `[H, W]`.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro

from seedrl import checkpoints
from seedrl.config import Config
from seedrl.config_json import from_json
from seedrl.errors import CheckpointError

_SHARD = 0  # one device's experience is enough to look at


def sampled_frames(
    replay: Mapping[str, np.ndarray], *, length: int, sequences: int, seed: int
) -> np.ndarray:
    """Frames of sequences drawn by priority^alpha, `[sequences, length, H, W]`.

    `replay` holds the arrays of a saved replay by name, with a leading device axis.
    """
    frames = replay["replay.pages.steps.timestep.observation"][_SHARD]
    mass, link = replay["replay.mass"][_SHARD], replay["replay.next"][_SHARD]
    random = np.random.default_rng(seed)
    pages = random.choice(len(mass), sequences, p=mass / mass.sum(dtype=np.float64))
    strips = []
    for page in pages:
        rows: list[np.ndarray] = []
        while len(rows) < length:
            rows.extend(frames[page])
            page = link[page]
        strips.append(np.stack(rows[:length]))
    return np.stack(strips)


def main(
    workdir: Annotated[Path, tyro.conf.Positional],
    out: Path = Path("replay_strip.png"),
    sequences: int = 4,
    frames: int = 12,
    seed: int = 0,
) -> None:
    """Writes `sequences` sampled sequences of the newest checkpoint's replay, `frames` of each."""
    from matplotlib import image

    found = checkpoints.latest(workdir / "checkpoints")
    saved = {} if found is None else checkpoints.restore_extra(found)
    if found is None or not saved:
        raise CheckpointError(
            f"expected a checkpoint with its replay in {workdir}; train with --checkpoint-replay"
        )
    config: Config = from_json(found.meta["config"])
    strips = sampled_frames(
        saved, length=config.agent.window.length, sequences=sequences, seed=seed
    )
    # `[sequences, frames, H, W]` -> one picture, a sequence a row.
    picture = np.concatenate([np.concatenate(list(row[:frames]), axis=1) for row in strips])
    image.imsave(out, picture, cmap="gray", vmin=0, vmax=255)
    print(f"{out}: {sequences} sequences of {frames} frames")


if __name__ == "__main__":
    try:
        tyro.cli(main)
    except CheckpointError as error:
        sys.exit(str(error))
