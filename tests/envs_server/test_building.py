"""Which back end is chosen, and that every failure to build is one line."""

import gymnasium
import pytest
from gymnasium.envs.registration import EnvSpec

from envs_server import building
from envs_server.envs import catch, masked_cartpole
from envs_server.errors import BuildError
from envs_server.recipe import Recipe

_HIDE = (masked_cartpole.hide_velocities,)
_MASKED = Recipe("m:make", {}, (), masked_cartpole.make, masked_cartpole.make_vec)


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        (Recipe("CartPole-v1", {}), "native"),
        (Recipe("CartPole-v1", {}, _HIDE), "sync"),
        (Recipe("Acrobot-v1", {}), "sync"),
        (Recipe("c:make", {}, (), catch.make), "sync"),
        (_MASKED, "native"),
        (Recipe("ALE/Pong-v5", {}), "atari"),
        (Recipe("ALE/Pong-v5", {}, _HIDE), "sync"),
    ],
)
def test_auto_takes_the_fastest_that_honours_the_recipe(recipe: Recipe, expected: str) -> None:
    assert building.choose(recipe, "auto") == expected
    assert building.choose(recipe, "") == expected
    assert building.choose(recipe, "sync") == "sync"


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        (Recipe("CartPole-v1", {}), "sync"),
        (_MASKED, "sync"),
        (Recipe("ALE/Pong-v5", {}), "atari"),
        (Recipe("OnlyVectors-v0", {}), "native"),
    ],
)
def test_seeded_takes_one_seed_for_many_environments_only_if_there_is_nothing_else(
    recipe: Recipe, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = EnvSpec("OnlyVectors-v0", vector_entry_point="somewhere:Vectors")
    monkeypatch.setitem(gymnasium.registry, spec.id, spec)
    assert building.choose(recipe, "seeded") == expected


@pytest.mark.filterwarnings("ignore:.*out of date")
@pytest.mark.parametrize(
    ("recipe", "vectorization", "reason"),
    [
        (
            Recipe("CartPole-v1", {}),
            "fast",
            "expected vectorization auto, seeded, sync, native, atari; got",
        ),
        (Recipe("NoSuchGame-v0", {}), "auto", "cannot build NoSuchGame-v0: "),
        (Recipe("CartPole-v1", {"colour": 1}), "auto", "cannot build CartPole-v1: TypeError: "),
        (Recipe("ALE/Pong-v5", {"colour": 1}), "auto", "cannot build ALE/Pong-v5: TypeError: "),
        (Recipe("Acrobot-v1", {}), "native", "cannot build Acrobot-v1: Error: "),
        (Recipe("c:make", {"rows": 1}, (), catch.make), "auto", "cannot build c:make: ValueError"),
    ],
)
def test_a_failure_to_build_is_one_line(recipe: Recipe, vectorization: str, reason: str) -> None:
    with pytest.raises(BuildError) as refusal:
        building.build(recipe, vectorization, 2)
    assert str(refusal.value).startswith(reason)
    assert "\n" not in str(refusal.value)
