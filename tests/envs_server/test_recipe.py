"""What a learner asks for is checked before anything is built."""

import pytest

from envs_server.envs import catch, masked_cartpole
from envs_server.errors import BuildError
from envs_server.recipe import Recipe, read_recipe
from seedrl.wire.seedrl_pb2 import Environment

_MASKED = "envs_server.envs.masked_cartpole"


def test_a_registered_id_needs_no_permission() -> None:
    environment = Environment(id="CartPole-v1", arguments='{"max_episode_steps": 3}')
    assert read_recipe(environment, ()) == Recipe("CartPole-v1", {"max_episode_steps": 3})


def test_factories_and_wrappers_are_loaded() -> None:
    masked = read_recipe(Environment(id=f"{_MASKED}:make"), ())
    assert (masked.factory, masked.vector_factory, masked.arguments) == (
        masked_cartpole.make,
        masked_cartpole.make_vec,
        {},
    )
    environment = Environment(
        id="envs_server.envs.catch:make", wrappers=[f"{_MASKED}:hide_velocities"]
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
