"""Sampled sequences of a saved replay as a picture, for looking at what is learned from."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

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
    places = random.choice(len(mass), sequences, p=mass / mass.sum(dtype=np.float64))
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
    return np.stack(strips)


def draw(strips: np.ndarray, png: Path) -> None:
    """Writes `strips`, `[sequences, frames, H, W]`, as a picture with a sequence a row."""
    # Slow to import.
    from matplotlib import image

    picture = np.concatenate([np.concatenate(list(row), axis=1) for row in strips])
    image.imsave(png, picture, cmap="gray", vmin=0, vmax=255)
