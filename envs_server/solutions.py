"""Dialogues with the environment's own solutions, for `seedrl pretrain`.

`python -m envs_server.solutions` reads JSON from stdin: `id`, `arguments` and `wrappers` as in a
configuration, `seeds`, a list, and `longest`. It prints the spec (`vocabulary`, `longest_turn`,
`longest_completion`, `end`), then a line for each seed: a JSON list of turns and completions
alternately, each a list of ids. A dialogue of more than `longest` ids stops there.
"""

import dataclasses
import json
import sys
from collections.abc import Sequence
from typing import TextIO

import numpy as np

from envs_server.build import build_one, read_recipe
from envs_server.check.environment import own_stdout
from envs_server.failures import BuildError, one_line
from envs_server.tokens import TokenGym
from seedrl.exit_codes import ExitCode
from seedrl.programs.outcome import exit_code, leave
from seedrl.token_env import TokenEnv
from seedrl.wire.seedrl_pb2 import Environment


def main() -> int:
    """Prints all dialogues."""
    with own_stdout() as stdout:
        _print(stdout)
    return ExitCode.OK


def _print(stdout: TextIO) -> None:
    asked = json.load(sys.stdin)
    seeds, longest = asked.pop("seeds"), asked.pop("longest")
    # All factories are allowed: the command line chooses the environment itself. Wrappers see rows
    # and rewards, which solutions do not depend on.
    built = build_one(read_recipe(Environment(**asked), ("*",))).unwrapped
    if not isinstance(built, TokenGym):
        raise BuildError(f"expected an environment of token ids (TokenEnv) as {asked['id']}")
    print(json.dumps(dataclasses.asdict(built.tokens)), file=stdout)
    for seed in seeds:
        try:
            played = dialogue(built.env, seed, longest)
        except Exception as error:  # of the environment
            raise BuildError(
                f"{asked['id']}, question of seed {seed}: {one_line(error)}"
            ) from error
        print(json.dumps(played), file=stdout)


def dialogue(env: TokenEnv, seed: int, longest: int) -> list[list[int]]:
    """Turns and completions by turns, of an episode in which every completion is the solution.

    It stops once it has more than `longest` ids.
    """
    turn: Sequence[int] | np.ndarray | None = env.reset(seed)
    found: list[list[int]] = []
    while turn is not None and sum(map(len, found)) <= longest:
        solution = np.asarray(env.solution(), np.int32)
        found += [np.asarray(turn).tolist(), solution.tolist()]
        turn, _ = env.step(solution)
    return found


if __name__ == "__main__":
    leave(exit_code(main, prog="python -m envs_server.solutions"))
