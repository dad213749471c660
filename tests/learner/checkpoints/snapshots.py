"""Small snapshots of a run, and its configuration."""

from typing import Any

import jax
import numpy as np
import optax

from learner.learning.learn_step import LearnerState
from seedrl.agents.r2d2 import R2D2Config
from seedrl.config import Config, EnvironmentConfig
from seedrl.config_io import to_json
from seedrl.networks.config import QNetworkConfig
from seedrl.replay.buffer import ReplayState
from seedrl.types import Page, StoredStep, TimeStep

CONFIG = Config(
    environment=EnvironmentConfig(id="CartPole-v1"),
    agent=R2D2Config(network=QNetworkConfig(core_size=8)),
)
META: dict[str, Any] = {"config": to_json(CONFIG), "env_steps": 12}


def state(width: int = 8, *, updates: int = 5) -> LearnerState:
    params = {"core": np.arange(2 * width, dtype=np.float32).reshape(2, width)}
    return LearnerState(
        params=params,
        target=jax.tree.map(lambda leaf: leaf + 1, params),
        optimizer=jax.tree.map(np.asarray, optax.adam(0.1).init(params)),
        updates=np.int32(updates),
        extras=(),
        key=np.array([1, 2], np.uint32),
    )


def replay(capacity: int = 3, *, seed: int = 0) -> ReplayState:
    """Two shards of `capacity` pages of two rows."""
    random, head = np.random.default_rng(seed), (2, capacity)

    def numbers(dtype: str, *shape: int) -> np.ndarray:
        return random.integers(0, 99, head + shape).astype(dtype)

    timestep = TimeStep(
        numbers("uint8", 2),
        numbers("float32", 2),
        numbers("float32", 2),
        {"image": numbers("uint8", 2, 4, 4), "more": (numbers("float32", 2, 3),)},
    )
    steps = StoredStep(timestep, numbers("int32", 2), numbers("int32", 2), ())
    return ReplayState(Page(steps, (numbers("float32", 5),)), numbers("int32"), numbers("float32"))


def abstract_of(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), tree)
