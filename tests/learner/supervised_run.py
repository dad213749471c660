"""A supervised session of fakes, for tests of what the main thread does beside it."""

import collections
import dataclasses
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from learner.checkpoints.run_folder import RunFolder
from learner.multihost.agreement import Hosts
from learner.processes.stop import StopRequest
from learner.reports import Reports
from learner.runtime.worker import Deaths
from learner.train import TrainLoop
from seedrl.config import Config, EnvironmentConfig, LoggingConfig
from seedrl.config_io import load


def config_of(*, report_seconds: float = 0.0) -> Config:
    config = load("cartpole_r2d2")
    return dataclasses.replace(
        config,
        environment=EnvironmentConfig(id="Some-v0"),
        learning=dataclasses.replace(config.learning, total_steps=5),
        logging=LoggingConfig(interval_seconds=report_seconds, stuck_seconds=60.0),
    )


class _Unshown(Reports):
    """Reports without files, terminal and thread."""

    def __init__(self, run: "SupervisedRun") -> None:
        self._run_of, self.values = run, {}
        self.events = cast(Any, SimpleNamespace(report=lambda *_, **__: None, elapsed_seconds=0.0))
        self.metrics = cast(Any, SimpleNamespace())
        self.metrics.write = lambda: None
        self.metrics.flush = lambda env_steps, updates: {"env_steps": env_steps}
        self.metrics.record = lambda kind, **_: run.calls.append(f"record {kind}")

    def end(self, reason: str, remark: str = "") -> None:
        self._run_of.ends.append(reason)
        super().end(reason, remark)


class SupervisedRun:
    """A session of fakes that takes a step at every look, and the loop that supervises it.

    Attributes:
      calls: what was done, in order.
      ends: why the run ends, as status says.
      at_step: what happens at the start of a step, by its number.
      answer: to a request for a snapshot while it runs.
      broken: what the ledger does not explain.
    """

    is_compiling, num_updates = False, 0

    def __init__(self, config: Config) -> None:
        self.calls: list[str] = []
        self.at_step: dict[int, Callable[[], None]] = {}
        self.ends: list[str] = []
        self.broken: list[str] = []
        self.answer: Future[Any] = Future()
        self.failure: Exception | None = None
        self.failed = SimpleNamespace(wait=self._step, is_set=lambda: self.failure is not None)
        self.acting = SimpleNamespace(
            training_steps=0,
            rounds=collections.deque(),
            best_score=None,
            unended_steps=lambda role: 0,
        )
        self.learning = SimpleNamespace(
            updates=7,
            num_applied=0,
            num_skipped=0,
            num_stale=0,
            request_snapshot=lambda with_replay: self.answer,
            snapshot=lambda with_replay: SimpleNamespace(name="at the end"),
        )
        self.evaluator = SimpleNamespace(confirmed=None, is_confirming=False)
        self.watchdog = SimpleNamespace(watch=lambda *_: None)
        self.system = SimpleNamespace(hosts=Hosts(), channel=None)
        self.system.geometry = SimpleNamespace(evaluation_slots=0)
        service = SimpleNamespace(
            stop=lambda: self.calls.append("stop serving"),
            finish=lambda reason: self.calls.append(f"finish serving: {reason}"),
        )
        self.stop_request, self.deaths = StopRequest(), Deaths()
        self.loop = TrainLoop(
            config,
            cast(Any, self),
            stop=self.stop_request,
            deaths=self.deaths,
            service=cast(Any, service),
            folder=RunFolder(Path("/nowhere"), held=-1),
            reports=_Unshown(self),
        )
        self.checkpointer: Any = self.loop.checkpointer
        self.checkpointer.is_due = lambda: False
        self.checkpointer._start = lambda snapshot: self.calls.append(f"save {snapshot.name}")
        self.checkpointer.wait = lambda: self.calls.append("saved")

    def _step(self, timeout: float) -> None:
        self.acting.training_steps += 1
        self.at_step.get(self.acting.training_steps, lambda: None)()

    def stop(self) -> None:
        self.calls.append("stop threads")

    def raise_failure(self) -> None:
        if self.failure is not None:
            raise self.failure

    def set_gauges(self) -> None:
        pass

    def accounts(self) -> dict[str, float]:
        return {}

    def residues(self, *, at_rest: bool = False) -> list[str]:
        return self.broken
