"""ALE games: frames, rewards, ends and seeds."""

import numpy as np
import pytest

from envs_server.adapter import Adapter
from envs_server.backends import atari, native
from envs_server.envs import masked_cartpole
from envs_server.errors import BuildError
from envs_server.recipe import Recipe
from seedrl.types import StepType

pytest.importorskip("ale_py")

_SHORT = {"max_num_frames_per_episode": 80, "noop_max": 8}


def test_observations_are_single_frames_and_arguments_have_ales_names() -> None:
    environment = atari.build(Recipe("ALE/Pong-v5", {"full_action_space": True}), 1)
    assert environment.observation_space.shape == (84, 84)
    assert environment.action_space.n == 18
    first = environment.reset([1])
    step = environment.step(np.zeros(1, np.int64))
    for frame in (first, step.observation):
        assert frame.shape == (1, 84, 84) and frame.dtype == np.uint8
        assert frame.flags.c_contiguous
    assert first.max() > 0


def test_a_frame_limit_truncates_and_the_next_row_is_first() -> None:
    adapter = Adapter(atari.build(Recipe("ALE/Pong-v5", _SHORT), 2))
    kinds = [adapter.reset([1, 2]).step_type]
    discounts = []
    for _ in range(45):
        step = adapter.step(np.zeros(2, np.int64))
        kinds.append(step.step_type)
        discounts.append(step.discount)
    assert np.array(discounts).min() == 1
    for row in np.array(kinds).T.tolist():
        lasts = [index for index, kind in enumerate(row) if kind == StepType.LAST]
        firsts = [index for index, kind in enumerate(row) if kind == StepType.FIRST]
        assert len(lasts) == 2
        assert firsts == [0, *(last + 1 for last in lasts)]


def test_losing_a_life_terminates_only_when_asked_for() -> None:
    def discounts(arguments: dict[str, object]) -> float:
        adapter = Adapter(atari.build(Recipe("ALE/Breakout-v5", arguments), 1))
        adapter.reset([1])
        # Fire, then stay: the ball is lost within a few dozen steps.
        actions = [1] * 4 + [0] * 60
        return min(float(adapter.step(np.array([action])).discount[0]) for action in actions)

    assert discounts({}) == 1
    assert discounts({"episodic_life": True}) == 0


def test_every_environment_gets_its_own_seed_and_reproduces_from_it() -> None:
    def play(seeds: list[int]) -> np.ndarray:
        environment = atari.build(Recipe("ALE/Pong-v5", {}), 2)
        environment.reset(seeds)
        return np.array([environment.step(np.zeros(2, np.int64)).observation for _ in range(20)])

    first, other = play([1, 5]), play([5, 3])
    np.testing.assert_array_equal(first[:, 1], other[:, 0])
    assert (first[:, 0] != first[:, 1]).any()


def test_what_it_cannot_do_is_refused() -> None:
    wrapped = Recipe("ALE/Pong-v5", {}, (masked_cartpole.hide_velocities,))
    with pytest.raises(BuildError, match="ALE/... id without wrappers"):
        atari.build(wrapped, 1)
    with pytest.raises(BuildError, match="ALE/... id without wrappers"):
        atari.build(Recipe("CartPole-v1", {}), 1)
    with pytest.raises(BuildError, match="must not contain stack_num"):
        atari.build(Recipe("ALE/Pong-v5", {"stack_num": 4}), 1)


def test_ales_own_vector_entry_point_would_stack_frames() -> None:
    # Why `auto` takes this back end for Atari although there is a vector entry point.
    environment = native.build(Recipe("ALE/Pong-v5", {}), 1)
    assert environment.observation_space.shape == (4, 84, 84)


def test_frames_that_would_fill_the_memory_are_refused() -> None:
    arguments = {"img_height": 100_000, "img_width": 100_000}
    with pytest.raises(BuildError, match="expected observations of at most 1024 MiB in a group"):
        atari.build(Recipe("ALE/Pong-v5", arguments), 1)
