import time

import numpy as np
import pytest

from envs_server.build import build, read_recipe
from envs_server.failures import BuildError
from seedrl.wire.seedrl_pb2 import Environment


def test_a_slowed_environment_is_one_that_any_learner_may_name() -> None:
    wrapper = "envs_server.envs.slowed:by_10_ms"
    recipe = read_recipe(Environment(id="CartPole-v1", wrappers=[wrapper]), allowed=())
    environment = build(recipe, "auto", 2)
    environment.reset([1, 2])
    start = time.monotonic()
    environment.step(np.zeros(2, np.int64))
    assert time.monotonic() - start >= 0.02
    environment.close()


def test_a_vector_sleeps_for_each_of_its_environments_and_takes_no_other_wrapper() -> None:
    pytest.importorskip("ale_py")
    wrapper = "envs_server.envs.slowed:by_50_ms"
    recipe = read_recipe(Environment(id="ALE/Pong-v5", wrappers=[wrapper]), allowed=())
    environment = build(recipe, "atari", 2)
    environment.reset([1, 2])
    start = time.monotonic()
    observation = environment.step(np.zeros(2, np.int64)).timestep.observation
    assert time.monotonic() - start >= 0.1 and observation.shape == (2, 84, 84)
    environment.close()
    other = recipe._replace(wrappers=(lambda env: env,))
    with pytest.raises(BuildError):
        build(other, "atari", 2)
