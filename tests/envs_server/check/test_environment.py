"""`seedrl check-env`: sound environments pass, and each usual mistake is named by its rule."""

import itertools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import example_envs
from seedrl_plugin import counting

from envs_server.build import Recipe, choose
from envs_server.check.environment import Play, check
from envs_server.check.findings import Findings
from envs_server.envs import catch, constant, masked_cartpole, token_tasks
from seedrl.exit_codes import ExitCode
from tests import started

_HIDE = (masked_cartpole.hide_velocities,)
_MASKED = Recipe("masked", {}, (), masked_cartpole.make, masked_cartpole.make_vec)
_COUNTING = Recipe("counting", {"image": True, "lengths": [3, 2]}, (), counting.make)
_STILL = Recipe("still", {"shape": [3], "dtype": "float32"}, (), constant.make, constant.make_vec)
_PONG = Recipe("ALE/Pong-v5", {"max_num_frames_per_episode": 60, "noop_max": 10})
_FEW = ["--steps", "40", "--num-envs", "2"]


def _recipe(factory: Callable[..., Any]) -> Recipe:
    name = factory.__name__
    return Recipe(name, {}, (), factory, getattr(example_envs, f"{name}_vec", None))


def _check(recipe: Recipe, vectorization: str = "auto") -> tuple[Findings, Play | None]:
    back_end = choose(recipe, vectorization)
    return check(recipe, back_end, num_envs=3, num_steps=40, seed=7, max_abs_reward=1e6)


@pytest.mark.parametrize(("step_seconds", "lines"), [(0.1, 0), (3.0, 1)])
def test_how_long_a_check_takes_is_printed_once_if_steps_are_slow(
    step_seconds: float,
    lines: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = itertools.count()  # read before and after each step
    clock = SimpleNamespace(perf_counter=lambda: step_seconds * next(now))
    monkeypatch.setattr("envs_server.check.environment.time", clock)
    findings, play = _check(Recipe("catch", {}, (), catch.make))
    assert not findings.errors and play is not None
    assert len(caplog.messages) == lines
    # 40 steps, played four times.
    assert all("160 steps of 3 s take about 8.0 minutes" in line for line in caplog.messages)


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
        (Recipe("reverse", {}, (), token_tasks.reverse), "auto", []),
        (Recipe("Taxi-v4", {"max_episode_steps": 9}), "auto", []),
        (Recipe("Pendulum-v1", {"max_episode_steps": 9}), "auto", []),
        (Recipe("Blackjack-v1", {}), "auto", []),
        pytest.param(_PONG, "auto", [], marks=pytest.mark.gate),  # see TestAtari of test_vector.py
        *((_recipe(example_envs.Walk), way, []) for way in ("native", "sync")),
        (_recipe(example_envs.DictWalk), "auto", []),
        (_recipe(example_envs.Drive), "auto", []),
        (_recipe(example_envs.Throw), "auto", []),
        (_recipe(example_envs.Dials), "auto", []),
        (_recipe(example_envs.Switches), "auto", []),
        (_recipe(example_envs.OddInfo), "auto", []),
    ],
    ids=lambda value: value.id if isinstance(value, Recipe) else None,
)
def test_a_sound_environment_passes(recipe: Recipe, vectorization: str, notes: list[str]) -> None:
    if recipe is _PONG:
        pytest.importorskip("ale_py")
    findings, play = _check(recipe, vectorization)
    assert findings.errors == [] and play is not None
    assert [note.rule for note in findings.notes if note.rule != "gymnasium"] == notes


@pytest.mark.parametrize("factory", example_envs.ERRORS, ids=lambda factory: factory.__name__)
def test_a_mistake_is_named_by_its_rule_alone(factory: Callable[..., Any]) -> None:
    findings, _ = _check(_recipe(factory))
    assert {error.rule for error in findings.errors} == {example_envs.ERRORS[factory]}
    # Gymnasium's checker would report most of them once more.
    assert "gymnasium" not in {note.rule for note in findings.notes}


def test_a_wrong_array_of_a_nested_observation_is_named() -> None:
    findings, _ = _check(_recipe(example_envs.DictWalkInCentimetres))
    named = {error.text.split(": ", 1)[1].partition("expected")[0] for error in findings.errors}
    assert named == {"place.x: ", "left: "}


@pytest.mark.parametrize("factory", example_envs.NOTES, ids=lambda factory: factory.__name__)
def test_a_fault_that_may_be_intended_is_a_note(factory: Callable[..., Any]) -> None:
    findings, _ = _check(_recipe(factory))
    assert findings.errors == []
    assert {note.rule for note in findings.notes} == {example_envs.NOTES[factory]}


# In a process of its own: `Chatty` prints past Python, and leaves a thread that is no daemon.
def test_the_report_is_all_that_is_on_stdout() -> None:
    words = ["check-env", "example_envs:Chatty", *_FEW]
    done = started.python("-m", "learner.cli.main", *words, cwd=Path(__file__).parent)
    assert done.returncode == ExitCode.OK
    assert f"{words[1]} passes" in done.stdout
    assert "by C" not in done.stdout and "by C" in done.stderr


def test_stepping_by_itself_ends_and_keeps_its_stdout() -> None:
    asked = {"id": f"{example_envs.__name__}:Chatty", "arguments": "{}", "wrappers": []}
    asked |= {"vectorization": "sync", "num_envs": 1, "groups": 1}
    done = started.python("-m", "envs_server.stepping", json.dumps(asked), stdin="0.01\n")
    ready, answer = map(json.loads, done.stdout.splitlines())
    assert (done.returncode, ready) == (0, {}) and answer["steps"] > 0
    assert "by C" in done.stderr


_HANGS = """
from envs_server.check import __main__, environment
environment.STEP_DEADLINE_SECONDS = 0.3
__main__.main(["example_envs:Stuck"])
"""


def test_a_step_that_never_returns_ends_the_check_and_is_named() -> None:
    done = started.python("-c", _HANGS)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{example_envs.__file__}:" in done.stderr.splitlines()[0]
