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
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec

TOTAL_STEPS = 5


def config_of(*, report_seconds: float = 0.0) -> Config:
    config = load("cartpole_r2d2")
    return dataclasses.replace(
        config,
        environment=EnvironmentConfig(id="Some-v0"),
        learning=dataclasses.replace(config.learning, total_steps=TOTAL_STEPS),
        logging=LoggingConfig(interval_seconds=report_seconds, stuck_seconds=60.0),
    )


SPEC = EnvSpec(ArraySpec((3,), "float32"), DiscreteSpec(2))


class Snapshot:
    """As much of one as is saved."""

    def __init__(self, name: str) -> None:
        self.name, self.confirmed = name, None
        self.state = SimpleNamespace(updates=7, params={})
        self.env_steps, self.limiter = 3, {"taken_steps": 12}


def answered(snapshot: Snapshot) -> Future[Any]:
    answer: Future[Any] = Future()
    answer.set_result(snapshot)
    return answer


class _Unshown(Reports):
    """Reports without files, terminal and thread."""

    def __init__(self, run: "SupervisedRun", metrics: Any) -> None:
        self._run_of, self.metrics, self.values = run, metrics, {}
        self.events = cast(Any, SimpleNamespace(report=run._said, elapsed_seconds=0.0))

    def end(self, reason: str, remark: str = "") -> None:
        self._run_of.ends.append(reason)
        super().end(reason, remark)


class SupervisedRun:
    """A supervised session of fakes that takes a step at every look, and all that is asked of it.

    Attributes:
      calls: what was done, in order.
      said: the last event of each kind.
      ends: why the run ends, as status says.
      at_step: what happens at the start of a step, by its number.
      answer: to who asks for a snapshot while it runs; None: one at once.
    """

    def __init__(self, config: Config) -> None:
        self.hosts = Hosts()
        self.calls: list[str] = []
        self.at_step: dict[int, Callable[[], None]] = {}
        self.stop = StopRequest()
        self.ends: list[str] = []
        self.said: dict[str, str] = {}
        self.residues: list[str] = []
        self.answer: Future[Any] | None = None
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
            request_snapshot=lambda with_replay: self.answer or answered(Snapshot("while it runs")),
            snapshot=lambda with_replay: Snapshot("at the end"),
            sequences_of_shards=lambda: [1],
        )
        self.evaluator = SimpleNamespace(confirmed=None, is_confirming=False)
        self.is_compiling = False
        self.service = SimpleNamespace(
            stop=lambda: self.calls.append("stop serving"),
            finish=lambda reason: self.calls.append(f"finish serving: {reason}"),
        )
        self.deaths = Deaths()
        self.loop = TrainLoop(
            config,
            self._session(),
            stop=self.stop,
            deaths=self.deaths,
            service=cast(Any, self.service),
            folder=RunFolder(Path("/nowhere"), held=-1),
            reports=self._reports(),
        )
        self.checkpointer: Any = self.loop.checkpointer
        self.checkpointer.is_due = lambda: False
        self.checkpointer._start = lambda snapshot: self.calls.append(f"save {snapshot.name}")
        self.checkpointer.wait = lambda: self.calls.append("saved")

    def _reports(self) -> Reports:
        metrics = SimpleNamespace(
            write=lambda: None,
            flush=lambda env_steps, updates: {"env_steps": env_steps, f"only at {env_steps}": 1.0},
            record=lambda kind, **fields: self.calls.append(f"record {kind}"),
            totals=dict,
        )
        return _Unshown(self, metrics)

    def _said(self, kind: str, text: str, **fields: Any) -> None:
        self.said[kind] = text

    def _session(self) -> Any:
        def raise_failure() -> None:
            if self.failure is not None:
                raise self.failure

        def stop() -> None:
            self.calls.append("stop threads")

        run = self

        class Session:
            failed, acting, learning, evaluator = (
                run.failed,
                run.acting,
                run.learning,
                run.evaluator,
            )
            system = SimpleNamespace(
                hosts=run.hosts,
                channel=None,
                geometry=SimpleNamespace(evaluation_slots=0),
                spec=SPEC,
                agent=SimpleNamespace(actor_params=lambda params: params),
            )
            is_compiling = property(lambda self: run.is_compiling)
            num_updates = 0
            watchdog = SimpleNamespace(watch=lambda *_: None)

            def __getattr__(self, name: str) -> Any:
                return {
                    "failure": run.failure,
                    "set_gauges": lambda: None,
                    "accounts": dict,
                    "residues": lambda at_rest=False: run.residues,
                    "stop": stop,
                    "raise_failure": raise_failure,
                }[name]

        return Session()

    def _step(self, timeout: float) -> None:
        self.acting.training_steps += 1
        self.at_step.get(self.acting.training_steps, lambda: None)()
