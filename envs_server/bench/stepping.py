"""How fast environments step by themselves: `python -m envs_server.bench.stepping`.

They are built and stepped as an env server does, with random actions, but nobody looks at the
results. First it prints `{"spec": TEXT}`, the text of `Ready.spec` of the wire. Each line on stdin
is a number of seconds to step for, and is answered by a line of JSON,
`{"steps": S, "seconds": T, "cpu_seconds": C}`; rows that only start the next episode are not steps.
The end of stdin is the end.
"""

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import tyro

from envs_server.build import build, read_recipe
from envs_server.check.environment import random_actions
from envs_server.spaces import env_spec, to_own_actions
from envs_server.vector import VectorEnvironment
from seedrl.spec_json import encode_spec
from seedrl.wire.seedrl_pb2 import Environment

_NUM_DRAWN = 64


@dataclass(frozen=True, kw_only=True)
class Options:
    """Measures how fast environments step, with nobody looking."""

    environment: str
    """A registered gymnasium id, or package.module:factory."""

    arguments: str = "{}"
    """Keyword arguments of the environment, as a JSON object."""

    wrappers: tuple[str, ...] = ()
    """package.module:factory wrappers, innermost first."""

    vectorization: str = "auto"
    """The back end: auto, sync, native or atari."""

    num_envs: int
    """Environments of each group."""

    groups: int = 1
    """Groups, whose steps are interleaved."""


class Stepped(NamedTuple):
    """Environment steps taken, the seconds that they took, and those of the CPU."""

    steps: int
    seconds: float
    cpu_seconds: float


class Stepper:
    """Owns groups of environments, and steps them, interleaved, with random actions.

    Attributes:
      spec: of each environment.
    """

    def __init__(self, groups: Sequence[VectorEnvironment], num_envs: int) -> None:
        self._groups = groups
        self._is_over = [np.zeros(num_envs, np.bool_) for _ in groups]
        self.spec = env_spec(groups[0].observation_space, groups[0].action_space)
        actions = random_actions(self.spec.action, _NUM_DRAWN, num_envs, seed=0)
        self._actions = [*map(to_own_actions(groups[0].action_space), actions)]
        self._number = 0
        for index, group in enumerate(groups):
            group.reset(range(index * num_envs, (index + 1) * num_envs))

    def run(self, seconds: float, clock: Callable[[], float] = time.perf_counter) -> Stepped:
        """Steps every group at least once, and continues for `seconds`."""
        start, cpu_start, steps = clock(), time.process_time(), 0
        while True:
            for index in range(len(self._groups)):
                steps += self._step(index)
            elapsed = clock() - start
            if elapsed >= seconds:
                return Stepped(steps, elapsed, time.process_time() - cpu_start)

    def _step(self, index: int) -> int:
        self._number += 1
        result = self._groups[index].step(self._actions[self._number % _NUM_DRAWN])
        resets = int(np.count_nonzero(self._is_over[index]))
        # The environment may overwrite what it returned.
        np.logical_or(result.terminated, result.truncated, out=self._is_over[index])
        return len(self._is_over[index]) - resets


def main() -> None:
    """Answers until stdin ends."""
    options = tyro.cli(Options)
    environment = Environment(
        id=options.environment,
        arguments=options.arguments,
        wrappers=options.wrappers,
        vectorization=options.vectorization,
    )
    # Whoever starts this chooses the environment: there is nobody to be protected from.
    recipe = read_recipe(environment, ("*",))
    groups = [build(recipe, options.vectorization, options.num_envs) for _ in range(options.groups)]
    stepper = Stepper(groups, options.num_envs)
    print(json.dumps({"spec": encode_spec(stepper.spec)}), flush=True)
    for line in sys.stdin:
        print(json.dumps(stepper.run(float(line))._asdict()), flush=True)


if __name__ == "__main__":
    main()
