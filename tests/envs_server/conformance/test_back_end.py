"""Every back end keeps to the contract, and the checker notices when one does not."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest

from envs_server.backends import atari, native, sync
from envs_server.building import BackEnd
from envs_server.conformance import violations
from envs_server.envs import catch, counting, masked_cartpole
from envs_server.recipe import Recipe
from envs_server.vector import VectorEnvironment, VectorStep

_SEEDS = [11, 22, 33]
_MASKED = Recipe(
    "masked", {"max_episode_steps": 9}, (), masked_cartpole.make, masked_cartpole.make_vec
)
_PONG = Recipe("ALE/Pong-v5", {"max_num_frames_per_episode": 60, "noop_max": 10})
_CASES = [
    pytest.param(sync.build, Recipe("CartPole-v1", {"max_episode_steps": 9}), id="sync"),
    pytest.param(native.build, Recipe("CartPole-v1", {"max_episode_steps": 9}), id="native"),
    pytest.param(sync.build, _MASKED, id="masked, sync"),
    pytest.param(native.build, _MASKED, id="masked, native"),
    pytest.param(sync.build, Recipe("catch", {"dtype": "uint8"}, (), catch.make), id="catch"),
    pytest.param(sync.build, Recipe("counting", {"image": True}, (), counting.make), id="counting"),
    pytest.param(sync.build, Recipe("Taxi-v4", {"max_episode_steps": 9}), id="Taxi"),
    pytest.param(sync.build, Recipe("Blackjack-v1", {}), id="Blackjack"),
    pytest.param(atari.build, _PONG, id="atari"),
]


@pytest.mark.filterwarnings("ignore:.*out of date")
@pytest.mark.parametrize(("build", "recipe"), _CASES)
def test_back_ends_keep_to_the_contract(build: BackEnd, recipe: Recipe) -> None:
    if atari.is_atari(recipe):
        pytest.importorskip("ale_py")
    assert violations(partial(build, recipe, len(_SEEDS)), _SEEDS, num_steps=40) == []


def _broken(change: dict[int, dict[str, object]]) -> VectorEnvironment:
    """Catch whose n-th step is replaced in these fields."""
    environment = sync.build(Recipe("catch", {}, (), catch.make), len(_SEEDS))
    count = 0

    def step(actions: np.ndarray) -> VectorStep:
        nonlocal count
        count += 1
        return environment.step(actions)._replace(**change.get(count, {}))

    return environment._replace(step=step)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({2: {"reward": np.array([0, np.nan, 0])}}, "step 2: expected finite numbers in reward"),
        (
            {3: {"observation": np.zeros((3, 10, 5), np.float64)}},
            "step 3: expected float32[3, 10, 5] for observation, got float64[3, 10, 5]",
        ),
        ({10: {"terminated": np.ones(3, np.bool_)}}, "step 10: environment 0 ended an episode"),
    ],
)
def test_a_broken_environment_is_named_with_its_step(
    change: dict[int, dict[str, object]], reason: str
) -> None:
    (line,) = violations(lambda: _broken(change), _SEEDS, num_steps=12)
    assert line.startswith(reason)


def test_an_environment_that_ignores_its_seeds_is_noticed() -> None:
    seeds = iter([[1, 2, 3], [4, 5, 6]])

    def build() -> VectorEnvironment:
        environment = sync.build(Recipe("counting", {}, (), counting.make), len(_SEEDS))
        others = next(seeds)

        def reset(ignored: Sequence[int]) -> np.ndarray:
            return environment.reset(others)

        return environment._replace(reset=reset)

    assert violations(build, _SEEDS, num_steps=2) == [
        "step 0: the same seeds and actions gave another step"
    ]
