"""A real learner inside the test's process, and real env servers outside of it.

Service, session and threads are wired as in `learner.train`; only the clock-driven reporting
and saving are left out. Afterwards a test can look at the learner state and at the replay.
"""

import functools
import signal
import subprocess
import sys
import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np

from learner.build import build, plan_geometry
from learner.learning.learn_step import LearnerState
from learner.report.metrics import Metrics, Tally
from learner.schedule import Session
from learner.serving.batching import free_running
from learner.serving.core import Batch, Serving
from learner.serving.hub import Hub
from learner.serving.leases import Role, SlotTable
from learner.serving.server import Service
from seedrl.agents.agent import Agent
from seedrl.config import Config, check, page_steps
from seedrl.replay.buffer import Replay, ReplayState, Sample, paged_replay
from seedrl.types import Sequence as Experience
from tests import started
from tests.patience import SECONDS

_POLL_SECONDS = 0.002
# What others go on with while the end of a killed env server is noticed, at most.
_STEPS_BESIDE_KILL = 1000


class PausableHub(Hub):
    """A hub whose training slots wait while `is_paused`, or once `has_enough`.

    The thread that acts asks for itself, so that a test which waits for the processor does not get
    more than it has asked for.
    """

    is_paused = False
    has_enough: Callable[[], bool] = staticmethod(lambda: False)

    def next_batch(self, roles: Collection[Role], timeout: float, device: int = 0) -> Batch | None:
        """See Hub."""
        waits = self.is_paused or self.has_enough()
        allowed = [role for role in roles if not (waits and role == "training")]
        return super().next_batch(allowed, timeout, device)


class RecordingMetrics(Metrics):
    """Metrics that also keep every single value that was observed, by name, in order."""

    def __init__(self, workdir: Path) -> None:
        self.observed: dict[str, list[float]] = defaultdict(list)
        super().__init__(workdir)

    def tally(self) -> Tally:
        made = super().tally()
        made.measured = _Recorded(self.observed)
        return made


class _Recorded(defaultdict[str, deque[float]]):
    """The values of an interval, which are also appended to `observed`."""

    def __init__(self, observed: dict[str, list[float]]) -> None:
        super().__init__(deque)
        self._observed = observed

    def __missing__(self, name: str) -> deque[float]:
        values = self._observed[name]

        class Recorded(deque[float]):
            def append(self, value: float) -> None:
                values.append(value)
                super().append(value)

        self[name] = made = Recorded()
        return made


def sequence_reader(replay: Replay) -> Callable[[ReplayState, np.ndarray], Experience]:
    """A function of a replay on the host and places `[n]`: leaves `[T, n, ...]`, carry `[n]`.

    It is compiled once, whatever n.
    """

    @jax.jit
    def sample_all(state: ReplayState) -> Sample:
        # With the same mass in every place, as many draws as places are one of each, in order.
        mass = jnp.ones_like(state.sampling_weight)
        return replay.sample(state._replace(sampling_weight=mass), jax.random.PRNGKey(0), len(mass))

    def read(state: ReplayState, starts: np.ndarray) -> Experience:
        sample = jax.tree.map(np.asarray, sample_all(state))
        np.testing.assert_array_equal(sample.index, np.arange(len(state.sampling_weight)))
        steps, carry = sample.sequence

        return Experience(
            jax.tree.map(lambda leaf: leaf[:, starts], steps),
            jax.tree.map(lambda leaf: leaf[starts], carry),
        )

    return read


@dataclass(frozen=True)
class Shard:
    """One device's replay on the host, and everything in it that could be sampled.

    Attributes:
      state: numpy leaves; pages beyond the first `num_pages` hold nothing.
      num_pages: pages that hold experience.
      starts: `[n]`, the places of sequences that can be sampled; those of pages where one starts in
        each.
      read: see `sequence_reader`; one for all shards.
    """

    state: ReplayState
    num_pages: int
    starts: np.ndarray
    read: Callable[[ReplayState, np.ndarray], Experience]

    @functools.cached_property
    def sequences(self) -> Experience:
        """All that can be sampled, leaves `[T, n, ...]`, carry `[n, ...]`, as `Replay.sample`."""
        return self.read(self.state, self.starts)


class Outcome(NamedTuple):
    """What is left of a run: `state` of the learner (numpy leaves), and a Shard per device."""

    config: Config
    agent: Agent
    state: LearnerState
    shards: list[Shard]
    epochs: list[int]
    ledger: dict[str, int]
    observed: dict[str, list[float]]


class LearnerRun:
    """A learner and its env servers. Used by one thread; `close` ends all of it, in any state."""

    def __init__(self, config: Config, folder: Path) -> None:
        check(config)
        self.config = config
        self.geometry = plan_geometry(config)
        self.metrics = RecordingMetrics(folder / "run")
        self.env_servers: list[subprocess.Popen[str]] = []
        self._num_env_servers = 0
        self._folder = folder
        slots = SlotTable(
            training=config.serving.training_slots,
            evaluation=config.serving.evaluation_slots,
            seed=config.seed,
            num_devices=len(self.geometry.inference),
        )
        serving = Serving(
            slots,
            page_steps=page_steps(config),
            rule=free_running(config.serving.batch_deadline_seconds),
        )
        self.hub = PausableHub(serving, config.environment)
        self.service = Service(self.hub, config.serving)
        self._switch_interval = sys.getswitchinterval()
        sys.setswitchinterval(0.0005)  # as in learner.run: the default is most of a step's latency
        self.service.start()

    @property
    def _capacity_pages(self) -> int:
        window, devices = self.config.agent.window, self.geometry.devices
        pages: int = self.config.replay.capacity_pages(window, len(devices))
        return pages

    def add_env_server(self, num_envs: int, *arguments: str) -> subprocess.Popen[str]:
        """Starts an env server with two groups; every other one sends over gRPC alone."""
        command = ["envs_server", "--learner", self.service.address]
        command += ["--num-envs", str(num_envs), "--groups", "2", *arguments]
        command += ["--allow-env", "seedrl_plugin.*"]
        self._num_env_servers += 1
        if self._num_env_servers % 2 == 0:
            command += ["--no-local-link"]
        name = f"env_server_{self._num_env_servers}"
        with (self._folder / f"{name}.log").open("wb") as log:
            process = started.start(
                command,
                cwd=Path.cwd(),
                variables=started.variables(),
                stdout=log,
                stderr=log,
            )
        self.env_servers.append(process)
        return process

    def start(self) -> None:
        """Waits for an env server, and starts acting and learning; see `Session.start`."""
        spec = self.hub.wait_for_spec(SECONDS)
        assert spec is not None, self.logs()
        self.agent: Agent = self.config.agent.build(spec)
        system = build(self.config, self.geometry, hub=self.hub, spec=spec, metrics=self.metrics)
        self.session = Session(self.config, system, self.hub, self.metrics)
        self.session.start()

    def run_until(self, condition: Callable[[], bool], what: str) -> None:
        """Waits for `condition`; fails if a thread dies or it takes too long."""
        deadline = time.monotonic() + SECONDS
        while not condition():
            assert time.monotonic() < deadline, f"no {what} in time; {self.logs()}"
            self.session.failed.wait(_POLL_SECONDS)
            self.session.raise_failure()

    def run_for(self, env_steps: int, updates: int = 0) -> None:
        """Waits for `env_steps` more training environment steps and `updates` more updates.

        Training pauses then, until it is run again.
        """
        env_steps += self.session.acting.training_steps
        updates += self.session.learning.updates

        def has_enough() -> bool:
            return (
                self.session.acting.training_steps >= env_steps
                and self.session.learning.updates >= updates
            )

        self.hub.has_enough = has_enough
        self.run_until(has_enough, f"{env_steps} environment steps and {updates} updates")

    def run_on(self) -> None:
        """Training pauses no more."""
        self.hub.has_enough = lambda: False

    def kill(self, process: subprocess.Popen[str]) -> None:
        """SIGKILL while it is stepped, and waits until the learner has noticed.

        Training may have paused by then, until it is run again.
        """
        before = self.live_slots()
        most_steps = self.session.acting.training_steps + _STEPS_BESIDE_KILL
        self.hub.has_enough = lambda: self.session.acting.training_steps >= most_steps
        process.send_signal(signal.SIGKILL)
        process.wait(SECONDS)
        self.env_servers.remove(process)
        self.run_until(lambda: self.live_slots() < before, "slot that became free")

    def run_with_a_replaced_env_server(
        self, num_envs: int, *arguments: str, env_steps: int, updates: tuple[int, int] = (1, 1)
    ) -> Outcome:
        """Runs twice, `env_steps` and `updates` each time, with an env server of its own.

        The first is killed while it is stepped: its streams are cut, and begin again in the second.
        """
        victim = self.add_env_server(num_envs, *arguments)
        self.start()
        self.wait_for_slots(num_envs)
        self.run_for(env_steps=env_steps, updates=updates[0])
        self.kill(victim)
        # One of its groups may be noticed later than another: its slots would be counted below.
        self.run_until(lambda: not self.live_slots(), "slots that are all free")
        self.add_env_server(num_envs, *arguments)
        self.wait_for_slots(num_envs)
        self.run_for(env_steps=env_steps, updates=updates[1])
        outcome = self.finish()
        assert outcome.epochs == [2] * num_envs, outcome.epochs
        return outcome

    def wait_for_slots(self, count: int) -> None:
        """Waits until `count` slots are leased; training pauses meanwhile.

        Otherwise the speed of acting and the start of an env server would decide on what replay
        holds in the end.
        """
        self.hub.is_paused = True
        self.run_until(lambda: self.live_slots() == count, f"{count} leased slots")
        self.hub.is_paused = False

    def live_slots(self) -> int:
        """Leased slots of both roles."""
        return sum(len(self.hub.live_slots(role)) for role in get_args(Role))

    def num_inserted_pages(self) -> int:
        """Pages that replay has taken in so far, over all shards."""
        return sum(index.num_inserted for index in self.session.learning.indices)

    def finish(self) -> Outcome:
        """Ends the env servers, lets learning catch up, stops the threads, and looks inside."""
        self.hub.is_paused = True
        for process in self.env_servers:
            process.terminate()
        codes = [process.wait(SECONDS) for process in self.env_servers]
        assert not any(codes), codes
        session, learning = self.session, self.config.learning
        self.wait_for_slots(0)
        batch_steps = learning.batch_sequences * self.config.agent.window.unroll
        self.run_until(
            lambda: (
                self.num_inserted_pages() * self.geometry.page_steps
                == self.hub.ledger().get("completed", 0)
                and session.system.channel.limiter.now.owed_steps < batch_steps
            ),
            "end of what was owed",
        )
        session.stop()
        assert session.residues(at_rest=True) == [], session.residues(at_rest=True)
        session.raise_failure()
        session.learning.finish_update()
        snapshot = session.learning.snapshot(with_replay=True)
        shards = [
            jax.tree.map(lambda leaf, shard=shard: leaf[shard], snapshot.replay)
            for shard in range(len(self.geometry.devices))
        ]
        read = sequence_reader(self._replay())
        return Outcome(
            self.config,
            self.agent,
            snapshot.state,
            [
                self._shard(state, index, read)
                for state, index in zip(shards, snapshot.indices, strict=True)
            ],
            self.hub._serving.slots.epochs.tolist(),
            self.session.accounts(),
            dict(self.metrics.observed),
        )

    def _shard(
        self,
        state: ReplayState,
        index: dict[str, Any],
        read: Callable[[ReplayState, np.ndarray], Experience],
    ) -> Shard:
        starts = np.flatnonzero(state.sampling_weight > 0)
        # The host's index and the device agree on what can be sampled.
        starts_in_page = self.config.agent.window.starts_in_page(self.geometry.page_steps)
        assert (starts[::starts_in_page] // starts_in_page).tolist() == index["sampleable"]
        assert len(starts) == len(index["sampleable"]) * starts_in_page
        num_pages = min(index["num_inserted"], self._capacity_pages)
        return Shard(state, num_pages, starts, read)

    def _replay(self) -> Replay:
        return paged_replay(
            window=self.config.agent.window,
            page_steps=self.geometry.page_steps,
            capacity_pages=self._capacity_pages,
            priority_exponent=self.config.replay.priority_exponent,
            initial_priorities=self.agent.initial_priorities,
        )

    def logs(self) -> str:
        """What the env servers have said."""
        return "\n".join(path.read_text()[-2000:] for path in self._folder.glob("*.log"))

    def close(self) -> None:
        """Ends whatever still runs."""
        for process in self.env_servers:
            process.kill()
            process.wait(SECONDS)
        if hasattr(self, "session"):
            self.session.stop()
        self.service.stop(grace_seconds=0.0)
        self.metrics.close()
        sys.setswitchinterval(self._switch_interval)
