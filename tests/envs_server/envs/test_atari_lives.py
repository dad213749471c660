"""Atari games in which an episode is a life."""

import numpy as np
import pytest

from envs_server.build import Recipe, build
from seedrl.types import StepType

pytest.importorskip("ale_py")


def test_the_return_of_a_game_is_that_of_the_same_game_in_one_episode() -> None:
    from envs_server.envs.atari_lives import GameReturn

    def played(*wrappers: object, **arguments: bool) -> tuple[list[tuple[int, int, float]], int]:
        # Step, environment and return of all games that end, and the number of all ends.
        small = {"img_height": 42, "img_width": 42, **arguments}
        vector = build(Recipe("ALE/Breakout-v5", small, wrappers), "atari", 2)
        vector.reset([3, 4])
        random, returns, games, num_ends = np.random.default_rng(0), np.zeros(2), [], 0
        for step in range(330):
            timestep, info = vector.step(random.integers(4, size=2))
            returns += timestep.reward
            for env in np.flatnonzero(timestep.step_type == StepType.LAST).tolist():
                num_ends += 1
                given = info(env).get("game_return", None if wrappers else returns[env])
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


def test_with_fire_at_each_reset_a_player_who_never_presses_it_loses_every_life() -> None:
    from envs_server.envs.atari_lives import FireReset

    def lives_lost(*wrappers: object) -> int:
        arguments = {"life_loss_info": True, "use_fire_reset": True}
        vector = build(Recipe("ALE/Breakout-v5", arguments, wrappers), "atari", 1)
        vector.reset([3])
        steps = [vector.step(np.zeros(1, np.int64)).timestep for _ in range(200)]
        lost = sum(step.discount[0] == 0 for step in steps)
        vector.close()
        return lost

    assert lives_lost() == 1  # the second life waits for ever
    assert lives_lost(FireReset) > 5  # and a second game


def test_a_clipped_reward_is_its_sign_and_the_return_of_a_game_has_its_points() -> None:
    from envs_server.envs.atari_lives import ClipReward, GameReturn

    def played(*wrappers: object) -> tuple[list[float], list[float]]:
        # Rewards, and returns of games.
        wrappers = (GameReturn, *wrappers)
        recipe = Recipe("ALE/MsPacman-v5", {"life_loss_info": True}, wrappers)
        vector = build(recipe, "atari", 1)
        vector.reset([3])
        random, rewards, games = np.random.default_rng(0), [], []
        for _ in range(460):
            timestep, info = vector.step(random.integers(9, size=1))
            rewards.append(float(timestep.reward[0]))
            games += [info(0)["game_return"]] if "game_return" in info(0) else []
        vector.close()
        return rewards, games

    raw, games = played()
    clipped, same_games = played(ClipReward)
    assert clipped == np.sign(raw).tolist() and max(raw) >= 10
    assert same_games == games and games
