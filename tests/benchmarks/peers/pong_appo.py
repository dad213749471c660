"""Pong as Sample Factory's APPO learns it, for the curve of `pong_ppo` to stand beside.

    python -m tests.benchmarks.peers.pong_appo --minutes 60 --json pong_appo.json

Frames are those of `pong_ppo`. The network (convolutions of DQN, 256 units) and the rest are what
Sample Factory has for Atari, but for the workers, of which there is one for each of two cores, and
its asynchronous mode. The file gets a point every few seconds: seconds since the process was
started, environment steps that were learned from, and the mean return of the last 100 training
episodes.
"""

import contextlib
import json
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tyro

from learner.bench import machine
from tests.benchmarks.peers import virtual_environment
from tests.benchmarks.peers.atari_rom import copy_pong
from tests.benchmarks.peers.peer_process import PeerProcess

_PATIENCE_SECONDS = 600.0
_FLAGS = (
    *("--algo=APPO", "--env=atari_pong", "--async_rl=True", "--serial_mode=False"),
    *("--num_workers=2", "--num_envs_per_worker=8", "--worker_num_splits=2", "--device=cpu"),
    *("--encoder_conv_architecture=convnet_atari", "--encoder_conv_mlp_layers", "256"),
    *("--summaries_use_frameskip=False", "--train_for_env_steps=10000000"),
    # The return of an episode that they begin in its middle would be that of its rest.
    "--decorrelate_experience_max_seconds=0",
    *("--save_every_sec=1000000", "--experiment=peer"),
)


@dataclass(frozen=True, kw_only=True)
class PongOptions:
    """Trains Sample Factory's APPO on Pong.

    Attributes:
      json: file for the curve, with machine, versions and commit; written again at each point.
      minutes: from the start of the process.
      point_seconds: between two points of the curve.
      size: height and width of a frame.
      seed: of Sample Factory.
      venvs: folder of the virtual environments.
    """

    json: Path
    minutes: float = 60.0
    point_seconds: float = 10.0
    size: int = 42
    seed: int = 0
    venvs: Path = field(default_factory=virtual_environment.default_folder)


def main() -> int:
    """0 once the time is over."""
    prog = "python -m tests.benchmarks.peers.pong_appo"
    options = tyro.cli(PongOptions, prog=prog, description=__doc__)
    interpreter = virtual_environment.python("sample_factory", options.venvs)
    copy_pong(interpreter)
    described = machine.describe()
    flags = [*_FLAGS, f"--seed={options.seed}"]
    points: list[dict[str, Any]] = []
    for point in _points(interpreter, flags, options):
        print(json.dumps(point), file=sys.stderr, flush=True)
        points.append(point)
        written = {"machine": described, "flags": flags, "size": options.size, "points": points}
        options.json.write_text(json.dumps(written, indent=2) + "\n")
    return 0


def _points(interpreter: Path, flags: list[str], options: PongOptions) -> Iterator[dict[str, Any]]:
    command = (interpreter, virtual_environment.PROGRAMS / "sample_factory_pong.py")
    start = time.monotonic()
    with PeerProcess(command, patience_seconds=_PATIENCE_SECONDS) as process:
        process.ask(flags=flags, size=options.size)
        while time.monotonic() - start < 60 * options.minutes:
            point = process.ask(seconds=options.point_seconds)
            yield {"seconds": round(time.monotonic() - start, 1), **point}


if __name__ == "__main__":
    # Else the peer's processes would go on for ever.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
