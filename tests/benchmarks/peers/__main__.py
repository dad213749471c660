"""This system beside what a user would take instead, each in the same run.

    python -m tests.benchmarks.peers NAME ... --output peers.json

Every peer gets a virtual environment of its own, which is made on first use.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated

from rich.console import Console

from learner.cli.bench import print_results, write
from learner.extras.bench.measuring import Pace, Result, machine
from learner.processes.tuning import tune_process
from seedrl.programs.command_line import read
from seedrl.programs.flags import POSITIONAL
from tests.benchmarks.peers import (
    atari,
    flashbax,
    ppo,
    pufferlib,
    sample_factory,
    sb3,
    trl,
    virtual_environment,
)

PEERS: dict[str, Callable[[Pace, Path], Iterator[Result]]] = {
    "sb3": sb3.run,
    "sample_factory": sample_factory.run,
    "breakout": partial(atari.run, atari.BREAKOUT),
    "pong": partial(atari.run, atari.PONG),
    "flashbax": flashbax.run,
    "torchrl": partial(ppo.run, "torchrl", "TorchRL PPO"),
    "pufferlib": pufferlib.run,
    "trl": trl.run,
}


@dataclass(frozen=True, kw_only=True)
class PeerOptions:
    """Measures this system and others, interleaved.

    Attributes:
      names: peers to compare with.
      output: file for all numbers, with machine, versions and commit.
      seconds: of each single measurement; training runs take as long as they take.
      rounds: times that each thing is measured; of training, the number of seeds.
      venvs: folder of the virtual environments.
    """

    names: Annotated[tuple[str, ...], POSITIONAL]
    output: Path | None = None
    seconds: float = 1.0
    rounds: int = 5
    venvs: Path = field(default_factory=virtual_environment.default_folder)


def main() -> int:
    """0 if everything could be measured."""
    options = read(PeerOptions, None, prog="python -m tests.benchmarks.peers")
    unknown = sorted(set(options.names) - PEERS.keys())
    if unknown or not options.names:
        raise SystemExit(f"expected names out of {', '.join(PEERS)}, got {', '.join(unknown)}")
    # For the replays, which move images; whole systems are measured in processes of their own.
    tune_process(keeps_freed_memory=True)
    pace = Pace(options.rounds, options.seconds)
    results: list[Result] = []
    venvs = options.venvs.expanduser().resolve()
    for name in options.names:
        for new in PEERS[name](pace, venvs):
            print(new.name, new.ours, new.limits, file=sys.stderr, flush=True)
            results.append(new)
            # As soon as it is known: the next peer may fail.
            if options.output is not None:
                write(options.output, results, machine(), pace)
    print_results(results, Console())
    return 0


if __name__ == "__main__":
    sys.exit(main())
