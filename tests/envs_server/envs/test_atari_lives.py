"""The reported return of a game of several episodes, one for each life, is that of one episode."""

import numpy as np
import pytest

from envs_server.native import build_vector
from seedrl.config import EnvironmentConfig

pytest.importorskip("ale_py")


def test_the_return_of_a_game_is_that_of_the_same_game_in_one_episode() -> None:
    from envs_server.envs.atari_lives import GameReturn

    def played(*wrappers: object, **arguments: bool) -> tuple[list[tuple[int, int, float]], int]:
        # Step, environment and return of all games that end, and the number of all ends.
        vector = build_vector(
            "atari",
            "ALE/Breakout-v5",
            {"img_height": 42, "img_width": 42, **arguments},
            wrappers,
            None,
            None,
            num_envs=2,
            max_abs_reward=EnvironmentConfig.max_abs_reward,
        )
        vector.reset([3, 4])
        random, returns, games, num_ends = np.random.default_rng(0), np.zeros(2), [], 0
        for step in range(500):
            result = vector.step(random.integers(4, size=2))
            returns += result.reward
            for env in np.flatnonzero(result.terminated | result.truncated).tolist():
                num_ends += 1
                given = result.info(env).get("game_return", None if wrappers else returns[env])
                if given is not None:
                    games.append((step, env, given))
                    returns[env] = 0
        vector.close()
        return games, num_ends

    expected, num_games = played()
    found, num_lives = played(GameReturn, life_loss_info=True)
    assert found == expected and any(each[2] > 0 for each in expected)
    # Five lives each, and those of the two games under way.
    assert num_games >= 4 and 0 <= num_lives - 5 * num_games <= 2 * 4
