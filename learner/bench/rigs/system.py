"""The whole system: real env servers, and in this process the learner that serves them."""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import NamedTuple, Self

from learner.bench.measure.cpu import tree_seconds
from learner.bench.rigs.served_fleet import Commands, ServedFleet
from learner.launch import env_servers
from learner.reporting.metrics import Metrics
from learner.session.components import assemble, compile_all
from learner.session.geometry import plan_geometry
from learner.threads.worker import Worker
from seedrl.config import Config

_TICK_SECONDS = 0.002
# Between starting the threads and counting what they do.
_RAMP_SECONDS = 0.2
_DEADLINE_SECONDS = 120.0


class Interval(NamedTuple):
    """What the system did while it was allowed to run.

    Attributes:
      steps: environment steps.
      updates: updates.
      seconds: how long it took.
      cpu_seconds: what this process and all that it has started took of the CPU.
      metrics: as the run's metrics report them.
      batches: that were acted on.
      messages: groups' steps in them.
      learner_cpu_seconds: what of the CPU's time this process took.
    """

    steps: int
    updates: int
    seconds: float
    cpu_seconds: float
    metrics: dict[str, float]
    batches: int = 0
    messages: int = 0
    learner_cpu_seconds: float = 0.0


class _Counts(NamedTuple):
    """What has been done so far."""

    steps: int
    updates: int
    batches: int
    messages: int


class System:
    """Owns a learner and its env servers. Entering starts the env servers and compiles.

    The learner's two threads run only inside `run`. Between two calls nothing computes: the env
    servers wait for actions.
    """

    def __init__(self, config: Config, commands: Commands = env_servers.commands):
        """For `commands` see `ServedFleet`."""
        self.served = ServedFleet(config, commands)
        self._stack = contextlib.ExitStack()
        self._failed = threading.Event()
        # Written by the thread that acts alone.
        self._batches = self._messages = 0

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.served)
            self.metrics = Metrics(self.served.folder / "run")
            stack.callback(self.metrics.close)
            hub, config = self.served.hub, self.served.config
            assert hub.spec is not None
            self.parts = assemble(
                config,
                plan_geometry(config),
                hub=hub,
                spec=hub.spec,
                metrics=self.metrics,
            )
            compile_all(self.parts)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def run(self, seconds: float, *, by_updates: bool = False) -> Interval:
        """Lets the system run, and measures for `seconds` after it has got going: at least a step.

        With `by_updates` the interval begins and ends with an update, and is at least one: acting
        runs ahead of learning by a few updates, which would count for much of a short interval. Of
        a high replay ratio, a step may take minutes.
        """
        with self._running():
            goes_on = self._await_update if by_updates else self._await_step
            self._failed.wait(_RAMP_SECONDS)
            goes_on()
            self._flush()
            cpu_start, own_start = tree_seconds(os.getpid()), time.process_time()
            # The clock first and last: a pause between the two never makes the system faster.
            start, before = time.perf_counter(), self._counts()
            self._failed.wait(seconds)
            goes_on()
            after, end = self._counts(), time.perf_counter()
            learner_cpu_seconds = time.process_time() - own_start
            cpu_seconds = tree_seconds(os.getpid()) - cpu_start
            metrics = self._flush()
        return Interval(
            steps=after.steps - before.steps,
            updates=after.updates - before.updates,
            seconds=end - start,
            cpu_seconds=cpu_seconds,
            metrics=metrics,
            batches=after.batches - before.batches,
            messages=after.messages - before.messages,
            learner_cpu_seconds=learner_cpu_seconds,
        )

    def run_until(self, condition: Callable[[], bool]) -> None:
        """Lets the system run until `condition`."""
        with self._running():
            self._await(condition)

    @contextlib.contextmanager
    def _running(self) -> Iterator[None]:
        learning = self.parts.learning
        bodies = {"acting": self._act, "learning": learning.run_once}
        workers = [Worker(name, body, self._failed) for name, body in bodies.items()]
        for worker in workers:
            worker.start()
        try:
            yield
        finally:
            # Acting first: while learning takes its pages, it cannot be stuck.
            has_stopped = all([worker.stop(_DEADLINE_SECONDS) for worker in workers])
        for worker in workers:
            if worker.failure is not None:
                raise RuntimeError("a thread of the learner died") from worker.failure
        if not has_stopped:
            raise RuntimeError("a thread of the learner did not stop")
        # Waits for the update in flight, which would compete with what is measured next.
        learning.finish_update()

    def _act(self) -> None:
        if done := self.parts.acting[0].run_once():
            self._batches += 1
            self._messages += len(done[0].pending)

    def _await_step(self) -> None:
        before = self.parts.acting[0].training_steps
        self._await(lambda: self.parts.acting[0].training_steps > before)

    def _await_update(self) -> None:
        before = self.parts.learning.updates
        self._await(lambda: self.parts.learning.updates > before)

    def _await(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while not condition() and not self._failed.wait(_TICK_SECONDS):
            if time.monotonic() > deadline:
                raise RuntimeError(f"nothing happened for {_DEADLINE_SECONDS:.0f} seconds")

    def _counts(self) -> _Counts:
        steps, updates = self.parts.acting[0].training_steps, self.parts.learning.updates
        return _Counts(steps, updates, self._batches, self._messages)

    def _flush(self) -> dict[str, float]:
        counts = self._counts()
        return self.metrics.flush(env_steps=counts.steps, updates=counts.updates)
