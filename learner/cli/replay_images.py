"""`seedrl replay-images WORKDIR`: sampled sequences of a saved replay as a picture."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from learner.cli.arguments import parse_flags, require_file
from seedrl import config_io
from seedrl.config import Config
from seedrl.config_io import from_json
from seedrl.errors import CheckpointError, ConfigError
from seedrl.exit_codes import ExitCode

PROG = "seedrl replay-images"


@dataclass(frozen=True, kw_only=True)
class ReplayImagesOptions:
    """Writes a picture of sequences drawn from the replay of a run's newest checkpoint, which must
    have been saved with `--checkpoint-replay`. Vectors are drawn as columns of grey.

    Attributes:
      workdir: folder of the run.
      out: the picture, a PNG; written over.
      sequences: number of sequences, each a row of the picture.
      frames: number of frames of each, from its first.
      observation: of a dict of observations the name of the one to draw; by default the first.
      seed: of the draw.
      allow: folders of Python files that the run may name; by default only what is installed.
    """

    workdir: Annotated[Path, tyro.conf.Positional]
    out: Path = Path("replay_strip.png")
    sequences: int = 4
    frames: int = 12
    observation: str | None = None
    seed: int = 0
    allow: tuple[str, ...] = ()


def run(argv: Sequence[str]) -> int:
    """Writes the picture; returns the exit code."""
    options = parse_flags(ReplayImagesOptions, argv, prog=PROG)
    for name in ("sequences", "frames"):
        if getattr(options, name) < 1:
            raise ConfigError(f"--{name}: expected at least 1, got {getattr(options, name)}")
    require_file("--out", options.out)
    # Imports jax: only once the command line is known to be good.
    from learner.report.replay_images import draw, observations, sampled_frames
    from seedrl import checkpoints

    found = checkpoints.latest(options.workdir / "checkpoints")
    saved = {} if found is None else checkpoints.restore_extra(found)
    if found is None or not saved:
        raise CheckpointError(
            f"expected a checkpoint with its replay in {options.workdir}; train with "
            "--checkpoint-replay"
        )
    named = observations(saved)
    name = next(iter(named)) if options.observation is None else options.observation
    if name not in named:
        raise ConfigError(
            f"--observation: expected one of {', '.join(map(repr, named))}, got {name!r}"
        )
    config_io.allow(*options.allow)
    config: Config = from_json(found.meta["config"])
    strips = sampled_frames(
        saved,
        length=config.agent.window.length,
        sequences=options.sequences,
        seed=options.seed,
        observation=name,
    )
    shown = strips[:, : options.frames]
    draw(shown, options.out)
    print(f"{options.out}: {shown.shape[0]} sequences of {shown.shape[1]} frames")
    return ExitCode.OK
