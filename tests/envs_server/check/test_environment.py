"""Sound environments pass, and each of the usual mistakes is named by its rule."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import example_envs

from envs_server.build import Recipe, choose
from envs_server.check.environment import (
    Checked,
    check,
)
from envs_server.envs import catch, constant, counting, masked_cartpole
from seedrl.types import StepType

FIRST, MID, LAST = StepType.FIRST, StepType.MID, StepType.LAST
_HIDE = (masked_cartpole.hide_velocities,)
_MASKED = Recipe("masked", {}, (), masked_cartpole.make, masked_cartpole.make_vec)
_COUNTING = Recipe("counting", {"image": True, "lengths": [3, 2]}, (), counting.make)
_STILL = Recipe("still", {"shape": [3], "dtype": "float32"}, (), constant.make, constant.make_vec)
_PONG = Recipe("ALE/Pong-v5", {"max_num_frames_per_episode": 60, "noop_max": 10})


def _recipe(factory: Callable[..., Any]) -> Recipe:
    name = factory.__name__
    return Recipe(name, {}, (), factory, getattr(example_envs, f"{name}_vec", None))


def _check(recipe: Recipe, vectorization: str = "auto") -> Checked:
    back_end = choose(recipe, vectorization)
    return check(recipe, back_end, num_envs=3, num_steps=40, seed=7, max_abs_reward=1e6)


@pytest.mark.filterwarnings("ignore:.*out of date")
@pytest.mark.parametrize(
    ("recipe", "vectorization", "notes"),
    [
        (Recipe("CartPole-v1", {}), "native", []),
        (Recipe("CartPole-v1", {}, _HIDE), "auto", []),
        (_MASKED, "native", []),
        (_STILL, "native", ["endless", "seed-ignored"]),
        (Recipe("catch", {}, (), catch.make), "auto", []),
        (_COUNTING, "auto", []),
        (Recipe("Taxi-v4", {"max_episode_steps": 9}), "auto", []),
        (Recipe("Pendulum-v1", {"max_episode_steps": 9}), "auto", []),
        (Recipe("Blackjack-v1", {}), "auto", []),
        (_PONG, "auto", []),
        *((_recipe(example_envs.Walk), way, []) for way in ("native", "sync")),
        (_recipe(example_envs.DictWalk), "auto", []),
        (_recipe(example_envs.Drive), "auto", []),
        (_recipe(example_envs.OddInfo), "auto", []),
    ],
    ids=lambda value: value.id if isinstance(value, Recipe) else None,
)
def test_a_sound_environment_passes(recipe: Recipe, vectorization: str, notes: list[str]) -> None:
    if recipe is _PONG:
        pytest.importorskip("ale_py")
    found = _check(recipe, vectorization)
    assert found.findings.errors == []
    assert [note.rule for note in found.findings.notes if note.rule != "gymnasium"] == notes
    # 3 environments took so many actions each, of which those on a last observation are no steps;
    # an episode that ends with the very last row is not followed by such an action.
    assert found.play is not None
    assert found.play.num_steps + len(found.play.episodes) in range(3 * 40, 3 * 40 + 4)


@pytest.mark.parametrize("factory", example_envs.ERRORS, ids=lambda factory: factory.__name__)
def test_a_mistake_is_named_by_its_rule_alone(factory: Callable[..., Any]) -> None:
    findings = _check(_recipe(factory)).findings
    assert {error.rule for error in findings.errors} == {example_envs.ERRORS[factory]}


@pytest.mark.parametrize("factory", example_envs.NOTES, ids=lambda factory: factory.__name__)
def test_what_may_be_intended_is_a_note(factory: Callable[..., Any]) -> None:
    findings = _check(_recipe(factory)).findings
    assert findings.errors == []
    assert {note.rule for note in findings.notes} == {example_envs.NOTES[factory]}


def test_a_reward_beyond_the_bound_names_the_field() -> None:
    (error,) = _check(_recipe(example_envs.LargeReward)).findings.errors
    assert "environment.max_abs_reward" in error.text
