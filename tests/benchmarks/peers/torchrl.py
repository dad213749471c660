"""TorchRL's inference server with asynchronous environments, trained by its PPO: see `ppo.py`.

Their fastest layout of those tried: a process for each group of environments, which asks a server
process for its actions and sends whole rollouts. Others cost as much CPU or more a step:
environments in threads, in two processes with shared memory, or each in a process of its own.
"""

from collections.abc import Iterator
from pathlib import Path

from learner.extras.bench.measuring import Pace, Result
from tests.benchmarks.peers import ppo


def run(pace: Pace, venvs: Path) -> Iterator[Result]:
    """Steps a second and seconds to the target."""
    yield from ppo.run("torchrl", "TorchRL PPO", pace, venvs)
