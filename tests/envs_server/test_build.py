"""What a learner asks for: checked, put on a back end, refused in one line."""

import gymnasium
import pytest
from gymnasium.envs.registration import EnvSpec

from envs_server.build import Recipe, build, choose, read_recipe
from envs_server.envs import catch, masked_cartpole, slowed
from envs_server.failures import BuildError
from seedrl.wire.seedrl_pb2 import Environment

_HIDE = (masked_cartpole.hide_velocities,)
_OF_VECTORS = (slowed.by_1_ms,)
_MASKED = Recipe("m:make", {}, (), masked_cartpole.make, masked_cartpole.make_vec)


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        (Recipe("CartPole-v1", {}), "native"),
        (Recipe("CartPole-v1", {"max_episode_steps": 9}), "native"),
        # To a vector implementation these would be the end of each step.
        (Recipe("CartPole-v1", {"max_episode_steps": -1}), "sync"),
        (Recipe("CartPole-v1", {"max_episode_steps": None}), "sync"),
        (Recipe("CartPole-v1", {}, _HIDE), "sync"),
        (Recipe("Acrobot-v1", {}), "sync"),
        (Recipe("c:make", {}, (), catch.make), "sync"),
        (_MASKED, "native"),
        (_MASKED._replace(arguments={"max_episode_steps": None}), "native"),  # its own argument
        (Recipe("ALE/Pong-v5", {}), "atari"),
        (Recipe("ALE/Pong-v5", {}, _HIDE), "sync"),
        (Recipe("ALE/Pong-v5", {}, (*_OF_VECTORS, *_HIDE)), "sync"),
        (Recipe("ALE/Pong-v5", {}, _OF_VECTORS), "atari"),
        (Recipe("CartPole-v1", {}, _OF_VECTORS), "sync"),
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


@pytest.mark.parametrize("back_end", ["sync", "native"])
def test_arguments_are_a_factorys_own_whatever_their_names(back_end: str) -> None:
    arguments = read_recipe(Environment(id="x-v0", arguments='{"id": 3, "wrappers": 4}'), ())[1]
    seen: list[tuple[int, int]] = []

    def factory(id: int, wrappers: int, **num_envs: int) -> object:
        seen.append((id, wrappers))
        return (masked_cartpole.make_vec if num_envs else catch.make)(**num_envs)

    build(Recipe("f:make", arguments, (), factory, factory), back_end, 1)
    assert seen == [(3, 4)]
    # Of gymnasium's own they would be other things.
    with pytest.raises(BuildError, match="num_envs"):
        build(Recipe("CartPole-v1", {"num_envs": 3}), back_end, 1)


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        (Environment(id="CartPole-v1", arguments="[1]"), "[1]"),
        (Environment(id="CartPole-v1", arguments="{x"), "got '{x'"),
        (Environment(id="CartPole-v1", arguments="[" * 10**5), "arguments"),
        (Environment(id="CartPole-v1", wrappers=["os:system"]), "os:system"),
        (Environment(id="os:CartPole-v1"), "os:CartPole-v1"),
    ],
)
def test_anything_else_is_refused(environment: Environment, named: str) -> None:
    with pytest.raises(BuildError) as refusal:
        read_recipe(environment, ())
    assert named in str(refusal.value)


def test_a_game_of_atari_is_suggested_only_for_an_unknown_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(gymnasium.registry, "Mine-v0", EnvSpec("Mine-v0", entry_point=catch.make))
    for name, is_suggested in (("PongOfMine-v0", True), ("Mine-v0", False)):
        with pytest.raises(BuildError) as refusal:
            build(Recipe(name, {"unknown": 1}), "sync", 1)
        assert ("ALE/" in str(refusal.value)) == is_suggested
