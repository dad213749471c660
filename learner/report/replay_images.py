"""Sampled sequences of a saved replay as a picture."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from seedrl.errors import CheckpointError

_SHARD = 0  # one device's experience is enough to look at
_OBSERVATION = "replay.pages.steps.timestep.observation"
_MOST_CHANNELS = 4  # an axis of at most that many is the one of channels: the last is drawn


def observations(replay: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The saved observations by name, `[n, P, K, ...]`; an observation that is no dict is ''.

    Raises CheckpointError for a replay whose sequences cannot be drawn by priority.
    """
    found = {
        name.removeprefix(_OBSERVATION).removeprefix("."): values
        for name, values in sorted(replay.items())
        if name.startswith(_OBSERVATION)
    }
    if not found or "replay.mass" not in replay:
        raise CheckpointError(
            "expected a prioritized replay, got an on-policy queue, which keeps no sequence that "
            "has been learned from"
        )
    return found


def sampled_frames(
    replay: Mapping[str, np.ndarray],
    *,
    length: int,
    sequences: int,
    seed: int,
    observation: str = "",
) -> np.ndarray:
    """Frames of sequences drawn by priority^alpha, `[sequences, length, H, W]` uint8.

    Args:
      replay: the arrays of a saved replay by name, with a leading device axis.
      length: steps of each.
      sequences: number of sequences.
      seed: of the draw.
      observation: name of the one to draw, see `observations`.

    Raises CheckpointError if no sequence is complete.
    """
    frames = observations(replay)[observation][_SHARD]
    mass, link = replay["replay.mass"][_SHARD], replay["replay.next"][_SHARD]
    if not mass.any():
        raise CheckpointError("expected a replay with a complete sequence, got none; train longer")
    random = np.random.default_rng(seed)
    weights = mass.astype(np.float64)
    places = random.choice(len(mass), sequences, p=weights / weights.sum())
    starts_in_page = len(mass) // len(link)
    strips = []
    for place in places:
        page, number = divmod(place, starts_in_page)
        start = number * frames.shape[1] // starts_in_page
        rows: list[np.ndarray] = []
        while len(rows) < start + length:
            rows.extend(frames[page])
            page = link[page]
        strips.append(np.stack(rows[start : start + length]))
    return _as_images(np.stack(strips))


def _as_images(frames: np.ndarray) -> np.ndarray:
    """`[N, T, ...]` as `[N, T, H, W]` uint8: images as they are, vectors as columns of grey.

    Anything but uint8 is scaled: its smallest value is black, its largest white.
    """
    shape = frames.shape[2:]
    if len(shape) == 3:
        frames = frames[..., -1] if shape[-1] <= _MOST_CHANNELS else frames[:, :, -1]
    elif len(shape) != 2:
        frames = frames.reshape(*frames.shape[:2], -1, 1)
    if frames.dtype == np.uint8:
        return frames
    values = frames.astype(np.float64)
    low, high = values.min(), values.max()
    return (255 * (values - low) / ((high - low) or 1.0)).astype(np.uint8)


def draw(strips: np.ndarray, png: Path) -> None:
    """Writes `strips`, `[sequences, frames, H, W]`, as a picture with a sequence a row."""
    # Slow to import.
    from matplotlib import image

    picture = np.concatenate([np.concatenate(list(row), axis=1) for row in strips])
    image.imsave(png, picture, cmap="gray", vmin=0, vmax=255)
