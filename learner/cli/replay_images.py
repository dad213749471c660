"""`seedrl replay-images WORKDIR`: sampled sequences of a saved replay as a picture."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro

from learner.cli.arguments import require_at_least, require_file
from learner.processes.tuning import require_jax
from seedrl import config_io, stored_arrays
from seedrl.config import Config
from seedrl.config_io import from_json
from seedrl.errors import CheckpointError
from seedrl.exit_codes import ExitCode
from seedrl.programs.command_line import read

PROG = "seedrl replay-images"
_SHARD = 0  # one device's experience is enough to look at
_OBSERVATION = "replay.pages.steps.timestep.observation"
_MOST_CHANNELS = 4  # an axis of at most that many is the one of channels: the last is drawn


@dataclass(frozen=True, kw_only=True)
class ReplayImagesOptions:
    """Writes a picture of sequences drawn from the replay of a run's newest checkpoint, which must
    have been saved with `--checkpoint-replay`. Vectors are drawn as columns of grey; of a dict of
    observations the first is drawn.

    Attributes:
      workdir: folder of the run.
      out: the picture, a PNG.
      force: replace a picture that is there.
      sequences: number of sequences, each a row of the picture.
      frames: number of frames of each, from its first.
      seed: of the draw.
      allow: folders of Python files that the run may name; by default only what is installed.
    """

    workdir: Annotated[Path, tyro.conf.Positional]
    out: Path = Path("replay_strip.png")
    force: bool = False
    sequences: int = 4
    frames: int = 12
    seed: int = 0
    allow: tuple[str, ...] = ()


def run(argv: Sequence[str]) -> int:
    options = read(ReplayImagesOptions, argv, prog=PROG)
    require_at_least(options, sequences=1, frames=1)
    require_file("--out", options.out, force=options.force)
    require_jax()
    # Imports jax: only once the command line is known to be good.
    from matplotlib import image

    from seedrl import checkpoints

    found = checkpoints.latest(options.workdir / "checkpoints")
    saved = {} if found is None else stored_arrays.read_large(found.path / "extra")
    if found is None or not saved:
        raise CheckpointError(
            f"expected a checkpoint with its replay in {options.workdir}; train with "
            "--checkpoint-replay"
        )
    config_io.allow(*options.allow)
    config: Config = from_json(found.meta["config"])
    strips = sampled_frames(
        saved,
        length=config.agent.window.length,
        sequences=options.sequences,
        seed=options.seed,
    )[:, : options.frames]
    picture = np.concatenate([np.concatenate(list(row), axis=1) for row in strips])
    image.imsave(options.out, picture, cmap="gray", vmin=0, vmax=255)
    print(f"{options.out}: {strips.shape[0]} sequences of {strips.shape[1]} frames")
    return ExitCode.OK


def sampled_frames(
    replay: Mapping[str, np.ndarray], *, length: int, sequences: int, seed: int
) -> np.ndarray:
    """Frames of sequences drawn by priority^alpha, `[sequences, length, H, W]` uint8.

    `replay` has the saved arrays by name, with a leading device axis. Raises CheckpointError if
    nothing can be drawn by priority, or no sequence is complete.
    """
    observed = sorted(name for name in replay if name.startswith(_OBSERVATION))
    if not observed or "replay.sampling_weight" not in replay:
        raise CheckpointError(
            "expected a prioritized replay, got an on-policy queue, which keeps no sequence that "
            "has been learned from"
        )
    names = (observed[0], "replay.sampling_weight", "replay.next")
    arrays = [np.atleast_2d(replay.get(name, [])) for name in names]
    is_there = all(array.size and array.dtype.kind in "biuf" for array in arrays)
    frames, mass, link = (array[_SHARD] if is_there else array for array in arrays)
    # They may be anybody's: wrong links and weights would be followed.
    if not (
        is_there
        and link.dtype.kind in "iu"
        and mass.ndim == link.ndim == 1
        and frames.ndim >= 2
        and len(frames) == len(link)
        and frames.shape[1]
        and len(mass) % len(link) == 0
        and link.min() >= 0
        and link.max() < len(link)
        and 0 <= mass.min() <= mass.max() < np.inf
        and 0 < length <= frames.shape[0] * frames.shape[1]
    ):
        raise CheckpointError("expected a replay of pages with links and weights, got others")
    if not mass.any():
        raise CheckpointError("expected a replay with a complete sequence, got none; train longer")
    weights = mass.astype(np.float64)
    places = np.random.default_rng(seed).choice(len(mass), sequences, p=weights / weights.sum())
    starts_in_page = len(mass) // len(link)
    strips = []
    for place in places:
        page, number = divmod(place, starts_in_page)
        start = number * frames.shape[1] // starts_in_page
        rows: list[np.ndarray] = []
        while len(rows) < start + length:  # a sequence goes on in the page that follows
            rows.extend(frames[page])
            page = link[page]
        strips.append(np.stack(rows[start : start + length]))
    return _as_images(np.stack(strips))


def _as_images(frames: np.ndarray) -> np.ndarray:
    """`[N, T, ...]` as `[N, T, H, W]` uint8: images as they are, vectors as columns of grey."""
    shape = frames.shape[2:]
    if len(shape) == 3:
        frames = frames[..., -1] if shape[-1] <= _MOST_CHANNELS else frames[:, :, -1]
    elif len(shape) != 2:
        frames = frames.reshape(*frames.shape[:2], -1, 1)
    if frames.dtype == np.uint8:
        return frames
    # Of any other dtype the smallest value is black, the largest white.
    values = frames.astype(np.float64)
    low, high = values.min(), values.max()
    return (255 * (values - low) / ((high - low) or 1.0)).astype(np.uint8)
