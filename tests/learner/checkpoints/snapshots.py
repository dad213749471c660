"""Small snapshots of a run, its configuration, and what saves them."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from learner.checkpointing import Checkpointer
from learner.checkpoints.run_folder import RunFolder
from learner.learning.learn_step import LearnerState
from learner.learning.loop import Snapshot
from learner.multihost.agreement import Hosts
from learner.report.events import NO_SINK
from seedrl.agents.r2d2 import R2D2Config
from seedrl.checkpoints import Checkpoint, latest
from seedrl.config import Config, EnvironmentConfig
from seedrl.networks.config import QNetworkConfig
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec

CONFIG = Config(
    environment=EnvironmentConfig(id="CartPole-v1"),
    agent=R2D2Config(network=QNetworkConfig(core_size=8)),
)


def snapshot_of(updates: int) -> Snapshot:
    params = {"core": np.zeros(2, np.float32)}
    state = LearnerState(params, (), (), np.int32(updates), (), np.zeros(2, np.uint32))
    return Snapshot(state, [], (), 12, {"taken_steps": 12})


def checkpointer(
    workdir: Path,
    *,
    config: Config = CONFIG,
    listener: Any = NO_SINK,
    watchdog: Any = None,
    clock: Callable[[], float] = time.monotonic,
) -> Checkpointer:
    """A checkpointer of a session that is only what is saved of it."""

    def request_snapshot(with_replay: bool) -> Future[Snapshot]:
        answer: Future[Snapshot] = Future()
        answer.set_result(snapshot_of(learning.updates))
        return answer

    learning = SimpleNamespace(updates=5, num_applied=0, request_snapshot=request_snapshot)
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


def checkpoint_of(workdir: Path, snapshot: Snapshot, meta: dict[str, Any]) -> Checkpoint:
    """The checkpoint of a snapshot, written as a run writes it."""
    checkpointer(workdir)._save(snapshot, meta)
    found = latest(workdir / "checkpoints")
    assert found is not None
    return found
