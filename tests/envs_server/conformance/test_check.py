"""Sound environments pass, and each of the usual mistakes is named by its rule."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import pytest

sys.path.insert(0, str(Path(__file__).parent))

import example_envs

from envs_server.backends import atari
from envs_server.building import choose
from envs_server.conformance import rules
from envs_server.conformance.check import Plan, Report, check
from envs_server.envs import catch, counting, masked_cartpole, masked_pendulum
from envs_server.recipe import Recipe

_HIDE = (masked_cartpole.hide_velocities,)
_MASKED = Recipe("masked", {}, (), masked_cartpole.make, masked_cartpole.make_vec)
_PONG = Recipe("ALE/Pong-v5", {"max_num_frames_per_episode": 60, "noop_max": 10})


def _recipe(factory: Callable[..., Any]) -> Recipe:
    name = factory.__name__
    return Recipe(name, {}, (), factory, getattr(example_envs, f"{name}_vec", None))


def _check(recipe: Recipe, vectorization: str = "auto", num_steps: int = 30) -> Report:
    return check(recipe, Plan(choose(recipe, vectorization), 3, num_steps, 7))


def _names(found: list[Any]) -> list[str]:
    return [finding.rule.name for finding in found]


@pytest.mark.filterwarnings("ignore:.*out of date")
@pytest.mark.parametrize(
    ("recipe", "vectorization", "notes"),
    [
        pytest.param(Recipe("CartPole-v1", {}), "native", [], id="CartPole, native"),
        pytest.param(Recipe("CartPole-v1", {}), "sync", [], id="CartPole, sync"),
        pytest.param(Recipe("CartPole-v1", {}, _HIDE), "auto", [], id="CartPole, wrapped"),
        pytest.param(_MASKED, "native", [], id="masked, native"),
        pytest.param(_MASKED, "sync", [], id="masked, sync"),
        pytest.param(
            Recipe("pendulum", {"max_episode_steps": 9}, (), masked_pendulum.make),
            *("auto", []),
            id="masked pendulum",
        ),
        pytest.param(Recipe("catch", {}, (), catch.make), "auto", ["same-length"], id="Catch"),
        pytest.param(
            Recipe("counting", {"image": True, "lengths": [3, 2]}, (), counting.make),
            *("auto", []),
            id="Counting",
        ),
        pytest.param(Recipe("Taxi-v4", {"max_episode_steps": 9}), "auto", [], id="Taxi"),
        pytest.param(Recipe("Blackjack-v1", {}), "auto", [], id="Blackjack"),
        pytest.param(_PONG, "auto", [], id="Pong"),
        pytest.param(_recipe(example_envs.Walk), "native", [], id="own, native"),
        pytest.param(_recipe(example_envs.Walk), "sync", [], id="own, sync"),
        pytest.param(_recipe(example_envs.DictWalk), "auto", [], id="nested observations"),
        pytest.param(_recipe(example_envs.Drive), "auto", [], id="continuous actions"),
    ],
)
def test_a_sound_environment_passes(recipe: Recipe, vectorization: str, notes: list[str]) -> None:
    if atari.is_atari(recipe):
        pytest.importorskip("ale_py")
    num_steps = 20 if recipe is _PONG else 30  # frames of games take their time
    report = _check(recipe, vectorization, num_steps)
    assert report.passes and report.play
    assert _names(report.findings.notes) == notes
    # 3 environments took so many actions each, of which those on a last observation are no steps;
    # an episode that ends with the very last row is not followed by such an action.
    taken = 3 * num_steps
    assert report.play.num_steps + len(report.play.episodes) in range(taken, taken + 4)
    assert report.play.episodes


@pytest.mark.parametrize("factory", example_envs.ERRORS, ids=lambda factory: factory.__name__)
def test_a_mistake_is_named_by_its_rule_alone(factory: Callable[..., Any]) -> None:
    report = _check(_recipe(factory))
    assert not report.passes
    assert _names(report.findings.errors) == [example_envs.ERRORS[factory]]
    assert _names(report.findings.notes) == []


@pytest.mark.parametrize("factory", example_envs.NOTES, ids=lambda factory: factory.__name__)
def test_what_may_be_intended_is_a_note(factory: Callable[..., Any]) -> None:
    report = _check(_recipe(factory), num_steps=50)  # enough for episodes of several lengths
    assert report.passes
    assert _names(report.findings.notes) == [example_envs.NOTES[factory]]


def test_an_end_in_the_last_step_of_the_limit_is_said_to_be_right() -> None:
    (note,) = _check(_recipe(example_envs.BothFlags)).findings.notes
    assert note.line().startswith("note   both-flags: step ")
    assert note.line().endswith(
        "nothing is to be fixed where the episode truly ended in the limit's last step"
    )


def test_every_rule_has_an_example() -> None:
    known = [rule for rule in vars(rules).values() if isinstance(rule, rules.Rule)]
    assert {rule.name for rule in known if rule.is_error} == {*example_envs.ERRORS.values()}
    assert {rule.name for rule in known if not rule.is_error} == {*example_envs.NOTES.values()}


def test_what_exists_only_as_vectors_is_checked_on_its_back_end() -> None:
    gymnasium.register("Vectors-v0", vector_entry_point=example_envs.Walks)
    try:
        report = _check(Recipe("Vectors-v0", {}))
    finally:
        del gymnasium.registry["Vectors-v0"]
    assert report.passes and report.play


def test_an_error_of_the_environment_itself_spares_the_back_end() -> None:
    assert _check(_recipe(example_envs.NanReward)).play is None
    assert _check(_recipe(example_envs.SpoilingVectors)).play is not None
