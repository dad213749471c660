"""The whole system in one process: a learner that can be run for a while, and its env servers."""

import contextlib
import functools
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

from learner.build import build, build_hub, plan_geometry
from learner.processes import env_servers
from learner.processes.env_servers import EnvServers, socket_address
from learner.report.metrics import Metrics
from learner.report.stages import ProcessorTime
from learner.runtime.worker import Worker
from learner.schedule import open_schedule
from learner.serving.hub import Hub
from learner.serving.server import Service
from seedrl.config import Config, check
from seedrl.errors import ConfigError, UserError
from seedrl.fields import with_fields
from seedrl.timing import POLL_SECONDS

ANY_PORT = "127.0.0.1:0"
# Until all environments are built, an update is done, or a thread has stopped.
_DEADLINE_SECONDS = 300.0
# Between looks at the env servers.
_LOOK_SECONDS = 0.5
# Between starting the threads and counting what they do.
_RAMP_SECONDS = 0.2


class ServedFleet(NamedTuple):
    """A hub behind its service and its env servers; see `serve_fleet`.

    Only the caller answers the steps that arrive at the hub.
    """

    config: Config
    hub: Hub
    folder: Path  # for files of a run, removed at the end
    servers: EnvServers

    def env_server_pids(self) -> list[int]:
        return [server.pid for server in self.hub.env_servers().servers]

    def await_rows(self, num_rows: int) -> None:
        """Waits until N rows have arrived in all. Raises ConfigError if they do not."""

        def accepted() -> int:
            return self.hub.ledger().get("accepted", 0)

        deadline = time.monotonic() + _DEADLINE_SECONDS
        while not self.hub.wait_until(lambda: accepted() >= num_rows, POLL_SECONDS):
            self.servers.raise_failure()
            if time.monotonic() > deadline:
                ends = (path.read_text()[-500:] for path in sorted(self.folder.glob("logs/*.log")))
                raise ConfigError(
                    f"environment.id: expected {num_rows} steps of environments within "
                    f"{_DEADLINE_SECONDS:.0f} seconds, got {accepted()}: {' | '.join(ends)}"
                )


@contextlib.contextmanager
def serve_fleet(config: Config, *, over_tcp: bool = False) -> Iterator[ServedFleet]:
    """Starts a hub with the env servers of `config`, and ends them."""
    # Over TCP: on a port of this host, as between hosts, and not on a socket. Nothing is evaluated.
    launch, changes = config.launch, {"serving.evaluation_slots": 0}
    if launch.envs_per_server:  # all of them train
        changes["serving.training_slots"] = launch.env_servers * launch.envs_per_server
    unused = {"evaluation.target_return": None, "evaluation.patience_rounds": 0}
    config = with_fields(config, {**unused, **changes})
    fleet = env_servers.plan(config)
    with contextlib.ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(prefix="seedrl-bench-"))
        address = ANY_PORT if over_tcp else stack.enter_context(socket_address())
        private = env_servers.on_private_socket(config, address)
        config = with_fields(private, {"serving.insecure": over_tcp})
        check(config)
        # Of one session: no seed has to differ from another one's.
        hub = build_hub(config, plan_geometry(config), session_number=1)
        service = Service(hub, config.serving)
        bound = with_fields(config, {"serving.bind": service.start()})
        stack.callback(service.stop, grace_seconds=0.0)
        words = env_servers.command(fleet, bound, logs=Path(name) / "logs")
        servers = stack.enter_context(EnvServers(words))
        served = ServedFleet(config, hub, Path(name), servers)
        # A first step of every environment: then all of them are built.
        served.await_rows(config.serving.training_slots)
        yield served


class Interval(NamedTuple):
    """Steps of environments and updates of a while, and the run's metrics of it."""

    steps: int
    updates: int
    seconds: float
    metrics: dict[str, float]


class System:
    """Owns a learner and its env servers. Entering starts the env servers and compiles.

    The learner's two threads run only inside `run`. Between two calls nothing computes: the env
    servers wait for actions.
    """

    def __init__(self, config: Config):
        self._config = config
        self._stack = contextlib.ExitStack()
        self._failed = threading.Event()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self.served = stack.enter_context(serve_fleet(self._config))
            # Where nobody looks: they are removed.
            self.metrics = Metrics(self.served.folder / "run")
            stack.callback(self.metrics.close)
            hub, config = self.served.hub, self.served.config
            assert hub.spec is not None
            geometry = plan_geometry(config)
            self.parts = build(config, geometry, hub=hub, spec=hub.spec, metrics=self.metrics)
            schedule = open_schedule(self.parts, config.learning.schedule)
            schedule.warm_up()
            # Else a thread that compiles would share the cores with what is measured.
            schedule.finish_compiling()
            self.bodies = schedule.bodies  # what each thread of a run repeats, by its name
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def run(
        self,
        seconds: float,
        *,
        by_updates: bool = False,
        bodies: Mapping[str, Callable[[], object]] | None = None,
    ) -> Interval:
        """Lets the system run, and measures for `seconds` after a ramp: at least one step.

        With `by_updates` the interval begins and ends with an update, and holds at least one:
        acting runs ahead of learning by a few updates, which would count for much of a short
        interval. At a high replay ratio a step may take minutes.

        `bodies`: what runs, one thread each; by default all of a run, see `bodies`.
        """
        acting, learning = self.parts.acting[0], self.parts.learning

        def count() -> int:
            return learning.updates if by_updates else acting.training_steps

        def await_next() -> None:
            before = count()
            self._await(lambda: count() > before)

        with self._running(bodies or self.bodies):
            self._failed.wait(_RAMP_SECONDS)
            await_next()
            self._flush()
            pids = self.served.env_server_pids()
            processor_time = ProcessorTime(pids)
            # The clock first and last: a pause between the two never makes the system faster.
            start = time.perf_counter()
            steps, updates = acting.training_steps, learning.updates
            self._failed.wait(seconds)
            await_next()
            steps, updates = acting.training_steps - steps, learning.updates - updates
            seconds = time.perf_counter() - start
            # As the reports of a run count them.
            for name, spent_seconds in processor_time.spent(pids).items():
                self.metrics.count(f"{name}_seconds", spent_seconds)
            self.metrics.gauge("env_servers", len(pids))
            return Interval(steps, updates, seconds, self._flush())

    def run_until(
        self,
        condition: Callable[[], bool],
        bodies: Mapping[str, Callable[[], object]] | None = None,
    ) -> None:
        with self._running(bodies or self.bodies):
            self._await(condition)

    @contextlib.contextmanager
    def _running(self, bodies: Mapping[str, Callable[[], object]]) -> Iterator[None]:
        learning = self.parts.learning
        workers = [Worker(name, body, self._failed) for name, body in bodies.items()]
        for worker in workers:
            worker.start()
        try:
            yield
        finally:
            # Acting first: while learning takes its pages, it cannot be stuck.
            has_stopped = all([worker.stop(_DEADLINE_SECONDS) for worker in workers])
        for worker in workers:
            if isinstance(worker.failure, UserError):
                raise worker.failure
            if worker.failure is not None:
                raise RuntimeError("a thread of the learner died") from worker.failure
        if not has_stopped:
            raise RuntimeError("a thread of the learner did not stop")
        # Waits for the update in flight, which would compete with what is measured next; and no
        # page of one interval arrives in the next.
        learning.finish_update()
        learning.insert_pages()

    def _await(self, condition: Callable[[], bool]) -> None:
        next_look = time.monotonic()
        deadline = next_look + _DEADLINE_SECONDS
        while not condition() and not self._failed.wait(0.002):
            now = time.monotonic()
            if now >= next_look:
                next_look = now + _LOOK_SECONDS
                self._require_env_servers()
            if now > deadline:
                raise ConfigError(
                    f"expected a step and an update within {_DEADLINE_SECONDS:.0f} seconds, got "
                    "none: an environment hangs, or an update is worth too many steps"
                )

    def _require_env_servers(self) -> None:
        # They are restarted, but what ended them would end them again.
        servers = self.served.hub.env_servers().servers
        if servers and all(each.state == "left" for each in servers):
            newest = servers[0]
            reason = newest.last_failure or newest.left_because
            raise ConfigError(f"environment.id: expected one that goes on, it ended: {reason}")

    def _flush(self) -> dict[str, float]:
        acting, learning = self.parts.acting[0], self.parts.learning
        return self.metrics.flush(env_steps=acting.training_steps, updates=learning.updates)


@contextlib.contextmanager
def raw_stepping(config: Config) -> Iterator[Callable[[float], float]]:
    """Processes of `config.launch`, which step environments as fast as they can.

    Gives a function that lets all of them step for some seconds: their steps per second together.
    """
    # Each (`python -m envs_server.stepping`) prints a line of JSON when it is ready, answers a line
    # with a number of seconds by another line of JSON, and ends when its input ends.
    environment, launch = config.environment, config.launch
    asked = {
        "id": environment.id,
        "arguments": environment.arguments,
        "wrappers": environment.wrappers,
        "vectorization": environment.vectorization,
        "num_envs": launch.envs_per_server // launch.groups,
        "groups": launch.groups,
    }
    command = [sys.executable, "-P", "-m", "envs_server.stepping", json.dumps(asked)]
    start = functools.partial(
        subprocess.Popen[str],
        command,
        env=env_servers.env_server_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(start()) for _ in range(launch.env_servers)]

        def rate(seconds: float) -> float:
            for process in processes:
                assert process.stdin is not None
                process.stdin.write(f"{seconds}\n")
                process.stdin.flush()
            answers = list(map(_read, processes))
            return float(sum(answer["steps"] / answer["seconds"] for answer in answers))

        for process in processes:  # all are started by now: they build side by side
            _read(process)
        yield rate


def _read(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"stepping environments ended with {process.wait()}; see above")
    answer: dict[str, Any] = json.loads(line)
    return answer
