"""Small snapshots of a run, its configuration, and what saves them."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import jax
import numpy as np
import optax

from learner.checkpointing import Checkpointer
from learner.checkpoints.run_folder import RunFolder
from learner.learning.learn_step import LearnerState
from learner.learning.loop import Snapshot
from learner.multihost.agreement import Hosts
from learner.report.events import NO_SINK
from seedrl.agents.r2d2 import R2D2Config
from seedrl.checkpoints import Checkpoint, latest
from seedrl.config import Config, EnvironmentConfig
from seedrl.config_io import to_json
from seedrl.networks.config import QNetworkConfig
from seedrl.replay.buffer import ReplayState
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec
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


def snapshot_of(updates: int) -> Snapshot:
    return Snapshot(state(updates=updates), [], (), 12, {"taken_steps": 12})


def answered(updates: int) -> Future[Snapshot]:
    answer: Future[Snapshot] = Future()
    answer.set_result(snapshot_of(updates))
    return answer


def checkpointer(
    workdir: Path,
    *,
    config: Config = CONFIG,
    listener: Any = NO_SINK,
    watchdog: Any = None,
    clock: Callable[[], float] = time.monotonic,
) -> Checkpointer:
    """A checkpointer of a session that is only what is saved of it."""
    learning = SimpleNamespace(updates=5, num_applied=0)
    learning.request_snapshot = lambda with_replay: answered(learning.updates)
    learning.snapshot = lambda with_replay: snapshot_of(learning.updates)
    parts = SimpleNamespace(
        system=SimpleNamespace(
            hosts=Hosts(),
            spec=EnvSpec(ArraySpec((4,), "float32"), DiscreteSpec(2)),
            agent=SimpleNamespace(actor_params=lambda params: params),
        ),
        learning=learning,
        acting=SimpleNamespace(training_steps=12, best_score=None),
        evaluator=SimpleNamespace(confirmed=None),
        watchdog=watchdog or SimpleNamespace(watch=lambda *_: None),
        failed=threading.Event(),
    )
    metrics: Any = SimpleNamespace(totals=dict, record=lambda *_, **__: None, write=lambda: None)
    return Checkpointer(
        config,
        cast(Any, parts),
        RunFolder(workdir, held=-1),
        metrics=metrics,
        listener=listener,
        clock=clock,
    )


def checkpoint_of(workdir: Path, snapshot: Snapshot, meta: dict[str, Any] = META) -> Checkpoint:
    """The checkpoint of a snapshot, written as a run writes it."""
    checkpointer(workdir)._save(snapshot, dict(meta))
    found = latest(workdir / "checkpoints")
    assert found is not None
    return found
