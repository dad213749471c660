"""Environments with a vector implementation of their own, and ALE's games."""

import inspect
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from envs_server import native
from envs_server.build import Recipe, build
from envs_server.envs import catch, masked_cartpole
from envs_server.failures import BuildError, Failures, Progress
from envs_server.groups import EnvGroup, VectorEnvironment
from envs_server.native import info_of
from seedrl.types import StepType

_CARTPOLE = Recipe("CartPole-v1", {})
_MASKED = Recipe(
    *("m:make", {"max_episode_steps": None}, ()), masked_cartpole.make, masked_cartpole.make_vec
)


def _native(recipe: Recipe, num_envs: int) -> VectorEnvironment:
    return build(recipe, "native", num_envs)


def _balance(observation: np.ndarray) -> np.ndarray:
    """A hand-made policy that keeps CartPole's pole up for a whole episode."""
    position, velocity, angle, spin = observation.T
    return (angle + 0.4 * spin + 0.05 * position + 0.1 * velocity > 0).astype(np.int64)


def test_cartpole_truncates_at_500_steps_and_bootstraps() -> None:
    group = EnvGroup(0, _native(_CARTPOLE, 3), [1, 2, 3])
    step = group.reset()
    returns = np.zeros(3)
    for number in range(1, 501):
        step = group.advance(_balance(step.observation))
        returns += step.reward
        expected = StepType.LAST if number == 500 else StepType.MID
        assert step.step_type.tolist() == [expected] * 3, number
    assert step.discount.tolist() == [1, 1, 1]
    assert returns.tolist() == [500, 500, 500]
    assert np.abs(step.observation).max() > 0
    step = group.advance(np.zeros(3, np.int64))
    assert step.step_type.tolist() == [StepType.FIRST] * 3
    assert (np.abs(step.observation) <= 0.05).all()


def _other_mode(num_envs: int) -> Any:
    return SyncVectorEnv([catch.make] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)


_HIDE = (masked_cartpole.hide_velocities,)


@pytest.mark.parametrize(
    ("recipe", "back_end"),
    [
        (Recipe("CartPole-v1", {}, _HIDE), "native"),
        (Recipe("c:make", {}, (), catch.make), "native"),
        (Recipe("c:make", {}, (), catch.make, _other_mode), "native"),
        (Recipe("Acrobot-v1", {}), "native"),
        (Recipe("ALE/Pong-v5", {}, _HIDE), "atari"),
        (Recipe("CartPole-v1", {"max_episode_steps": -1}), "native"),
        (_MASKED, "native"),
        (_CARTPOLE, "atari"),
        (Recipe("ALE/Pong-v5", {"stack_num": 4}), "atari"),
        (_CARTPOLE, "fast"),
    ],
)
def test_a_recipe_that_a_back_end_cannot_honour_is_refused(recipe: Recipe, back_end: str) -> None:
    if recipe.is_atari:
        pytest.importorskip("ale_py")
    with pytest.raises(BuildError):
        build(recipe, back_end, 2)


def test_a_reset_is_noted_so_that_a_later_failure_is_no_wrong_usage() -> None:
    failures = Failures(2)
    build(_CARTPOLE, "native", 2, failures=failures).reset([1])
    assert failures.progress is Progress.RESET


def test_merged_info_is_taken_apart() -> None:
    info = {
        "lives": np.array([3, 0, 2]),
        "_lives": np.array([True, False, True]),
        "episode": {"r": np.array([0.0, 2.5, 0.0]), "_r": np.array([False, True, False])},
        "listed": [4, 5, 6],
        "alone": 7,
        5: np.zeros(3),
    }
    assert info_of(info, 0) == {"lives": 3, "episode": {}, "listed": 4}
    assert info_of(info, 1) == {"episode": {"r": 2.5}, "listed": 5}


@pytest.mark.skipif(find_spec("ale_py") is None, reason="needs the extra atari")
class TestAtari:
    """ALE games: frames, rewards, ends and seeds."""

    def test_observations_are_single_frames_and_arguments_have_ales_names(self) -> None:
        environment = build(Recipe("ALE/Pong-v5", {"full_action_space": True}), "atari", 1)
        assert environment.spec.observation.shape == (84, 84)
        assert environment.action_space.n == 18  # type: ignore[attr-defined]
        first = environment.reset([1])
        step, _ = environment.step(np.zeros(1, np.int64))
        for frame in (first, step.observation):
            assert frame.shape == (1, 84, 84) and frame.dtype == np.uint8
            assert frame.flags.c_contiguous
        assert first.max() > 0

    def test_no_setting_of_a_game_is_left_to_a_default_of_ale(self) -> None:
        from ale_py.vector_env import AtariVectorEnv

        # What changes no frame, reward or end, or only with continuous actions.
        others = {"num_threads", "thread_affinity_offset", "continuous_action_threshold"}
        settings = inspect.getfullargspec(AtariVectorEnv.__init__).kwonlyargs
        assert {*settings} - others == {*native._ALE_DEFAULTS, *native._ALE_FIXED}

    def test_a_frame_limit_truncates_and_the_next_row_is_first(self) -> None:
        short = {"max_num_frames_per_episode": 80, "noop_max": 8}
        group = EnvGroup(0, build(Recipe("ALE/Pong-v5", short), "atari", 2), [1, 2])
        kinds = [group.reset().step_type]
        discounts = []
        for _ in range(45):
            step = group.advance(np.zeros(2, np.int64))
            kinds.append(step.step_type)
            discounts.append(step.discount)
        assert np.array(discounts).min() == 1
        for row in np.array(kinds).T.tolist():
            lasts = [index for index, kind in enumerate(row) if kind == StepType.LAST]
            firsts = [index for index, kind in enumerate(row) if kind == StepType.FIRST]
            assert len(lasts) == 2
            assert firsts == [0, *(last + 1 for last in lasts)]

    def test_every_environment_gets_its_own_seed_and_reproduces_from_it(self) -> None:
        def play(seeds: list[int]) -> np.ndarray:
            environment = build(Recipe("ALE/Pong-v5", {}), "atari", 2)
            environment.reset(seeds)
            steps = [environment.step(np.zeros(2, np.int64)) for _ in range(20)]
            return np.array([step.timestep.observation for step in steps])

        first, other = play([1, 5]), play([5, 3])
        np.testing.assert_array_equal(first[:, 1], other[:, 0])
        assert (first[:, 0] != first[:, 1]).any()
