"""Steps environments with nothing around them: the reference of `seedrl bench pipeline`.

`python -m envs_server.stepping JSON` builds groups as an env server does and steps them alternately
with random actions. JSON has `id`, `arguments`, `wrappers` and `vectorization` as in a config, and
`num_envs` of each of `groups`. It prints `{}` once it is ready. Each line on stdin is a number of
seconds to step for, answered by `{"steps": S, "seconds": T}`; it ends when stdin ends.
"""

import json
import sys
import time
from typing import TextIO

import numpy as np

from envs_server.build import build, read_recipe
from envs_server.check.environment import legal, own_stdout, random_actions
from envs_server.spaces import to_own_actions
from seedrl.exit_codes import ExitCode
from seedrl.programs.outcome import exit_code, leave
from seedrl.specs import has_mask
from seedrl.wire.seedrl_pb2 import Environment

_NUM_DRAWN = 64  # rows of random actions, drawn before the clock runs


def main() -> int:
    """Answers until stdin ends."""
    with own_stdout() as stdout:  # an environment that prints must not answer in our place
        _step(stdout)
    return ExitCode.OK


def _step(stdout: TextIO) -> None:
    asked = json.loads(sys.argv[1])
    num_envs, num_groups = asked.pop("num_envs"), asked.pop("groups")
    # All factories are allowed: the command line chooses the environment itself.
    recipe = read_recipe(Environment(**asked), ("*",))
    # As many as in a run: what they share of a processor's caches is part of their speed.
    groups = [build(recipe, asked["vectorization"], num_envs) for _ in range(num_groups)]
    drawn = random_actions(groups[0].spec.action, _NUM_DRAWN, num_envs, seed=0)
    to_own = to_own_actions(groups[0].action_space)
    actions = [*map(to_own, drawn)]
    seen = [
        group.reset(range(index * num_envs, (index + 1) * num_envs))
        for index, group in enumerate(groups)
    ]
    is_masked = has_mask(seen[0])
    print("{}", file=stdout, flush=True)
    number = 0
    for line in sys.stdin:
        start, steps = time.perf_counter(), 0
        while (elapsed := time.perf_counter() - start) < float(line) or not steps:
            for index, group in enumerate(groups):
                number += 1
                taken = actions[number % _NUM_DRAWN]
                if is_masked:  # the observation's memory is that of the newest step
                    taken = to_own(legal(drawn[number % _NUM_DRAWN], seen[index]))
                timestep, _ = group.step(taken)
                seen[index] = timestep.observation
                # A row that only starts the next episode is no step: FIRST, which is 0.
                steps += int(np.count_nonzero(timestep.step_type))
        print(json.dumps({"steps": steps, "seconds": elapsed}), file=stdout, flush=True)


if __name__ == "__main__":
    leave(exit_code(main, prog="python -m envs_server.stepping"))
