import time

import numpy as np

from envs_server.build import build, read_recipe
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
