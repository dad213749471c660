"""Dialogues with the environment's own solutions, for `seedrl pretrain`."""

from collections.abc import Sequence

import numpy as np

from envs_server.build import build_one, read_recipe
from envs_server.failures import BuildError, one_line
from envs_server.tokens import TokenGym
from seedrl.specs import TokensSpec
from seedrl.token_env import TokenEnv
from seedrl.wire.seedrl_pb2 import Environment


def played(
    environment: Environment, seeds: Sequence[int], longest: int
) -> tuple[TokensSpec, list[list[list[int]]]]:
    """The environment's tokens, and a dialogue for each seed. Raises BuildError.

    All code that `environment` names is allowed: the command line chooses it itself.
    """
    # Wrappers see rows and rewards, which solutions do not depend on.
    built = build_one(read_recipe(environment, ("*",))).unwrapped
    if not isinstance(built, TokenGym):
        raise BuildError(f"expected an environment of token ids (TokenEnv) as {environment.id}")
    dialogues = []
    for seed in seeds:
        try:
            dialogues.append(dialogue(built.env, seed, longest))
        except (Exception, SystemExit) as error:  # of the environment
            raise BuildError(
                f"{environment.id}, question of seed {seed}: {one_line(error)}"
            ) from error
    return built.tokens, dialogues


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
