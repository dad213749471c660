"""What a learner asks for: checked, put on a back end, refused in one line."""

import gymnasium
import pytest
from gymnasium.envs.registration import EnvSpec

from envs_server.build import Recipe, build, choose, read_recipe
from envs_server.envs import catch, masked_cartpole
from envs_server.errors import BuildError
from seedrl.wire.seedrl_pb2 import Environment

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
    assert choose(recipe, "auto") == expected
    assert choose(recipe, "") == expected
    assert choose(recipe, "sync") == "sync"


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
    assert choose(recipe, "seeded") == expected


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
        build(recipe, vectorization, 2)
    assert str(refusal.value).startswith(reason)
    assert "\n" not in str(refusal.value)


_MODULE = "envs_server.envs.masked_cartpole"


def test_factories_and_wrappers_are_loaded() -> None:
    masked = read_recipe(Environment(id=f"{_MODULE}:make"), ())
    assert (masked.factory, masked.vector_factory, masked.arguments) == (
        masked_cartpole.make,
        masked_cartpole.make_vec,
        {},
    )
    environment = Environment(
        id="envs_server.envs.catch:make", wrappers=[f"{_MODULE}:hide_velocities"]
    )
    recipe = read_recipe(environment, ())
    assert (recipe.factory, recipe.vector_factory) == (catch.make, None)
    assert recipe.wrappers == (masked_cartpole.hide_velocities,)


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        (Environment(id="CartPole-v1", arguments="[1]"), r"JSON object .* got '\[1\]'"),
        (Environment(id="CartPole-v1", arguments="{"), "expected a JSON object"),
        (Environment(id="CartPole-v1", arguments="[" * 10**5), "arguments that are nested less"),
        (
            Environment(id="CartPole-v1", arguments='{"wrappers": [], "num_envs": 3}'),
            "must not contain num_envs, wrappers",
        ),
        (Environment(id="CartPole-v1", wrappers=["os:system"]), "os:system is not among"),
        (
            Environment(id="os:CartPole-v1"),
            "module:id is not supported: write a factory that imports",
        ),
    ],
)
def test_anything_else_is_refused(environment: Environment, reason: str) -> None:
    with pytest.raises(BuildError, match=reason):
        read_recipe(environment, ())
