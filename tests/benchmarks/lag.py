"""The lag of every row that is trained: a real learner with real env servers, seen from inside.

    python -m tests.benchmarks.lag --updates 200 --json lag.json
    python -m tests.benchmarks.lag --updates 200 --starved

IMPALA and PPO on CartPole, synchronous and asynchronous. What an update is given is compared with
the updates before it, row by row: in rounds each must have been acted by the version that its round
began with, and otherwise by none that is older than the configuration allows (`Bounds`): of
`replay.max_lag_updates` that is what acting may be ahead, and one update more. That no
row is in two sequences is seen by observations, of which CartPole has no two that are equal.
"""

import contextlib
import dataclasses
import functools
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from learner.bench import machine
from learner.launch import env_servers
from learner.launch.supervisor import Supervisor
from learner.train import train
from seedrl import config_io
from seedrl.agents.agent import Agent, AgentState
from seedrl.agents.window import WindowSpec
from seedrl.config import Config, Schedule
from seedrl.specs import EnvSpec
from seedrl.types import Array, Sequence, Tree
from tests.system.processes import descendants

_CONFIGS = ("cartpole_impala", "cartpole_ppo")
_SCHEDULES: tuple[Schedule, ...] = ("synchronous", "asynchronous")
_STOPPED_SECONDS, _RUNNING_SECONDS = 1.5, 0.5


class Given(NamedTuple):
    """What one update was given: `version [T, B]` and `observation [T, B, ...]` of its rows."""

    version: np.ndarray
    observation: np.ndarray


class Bounds(NamedTuple):
    """The largest lag that a configuration allows, in updates.

    Attributes:
      row: of any row, as `replay.max_lag_updates` says.
      completing: of the row that completes a sequence, whatever the speed of environments.
    """

    row: int
    completing: int


@dataclass(frozen=True, kw_only=True)
class Lag:
    """What was seen of one agent in one schedule.

    Attributes:
      rows: that were given to updates; the one that bootstraps counts.
      shared: of these, how many had been in another sequence.
      stale: of rows that were not given to updates, those that were too old.
      exceptions: with a lag below 0 or above their bound.
      largest, largest_completing: lag of any row, and of those that complete a sequence.
    """

    config: str
    schedule: str
    updates: int
    rows: int
    shared: int
    stale: int
    exceptions: int
    largest: int
    bound: int
    largest_completing: int
    bound_completing: int


@dataclass(frozen=True, kw_only=True)
class Watched:
    """An agent that also writes down what its updates are given.

    Attributes:
      agent: its configuration.
    """

    agent: Any

    @property
    def window(self) -> WindowSpec:
        """That of the agent."""
        window: WindowSpec = self.agent.window
        return window

    def build(self, spec: EnvSpec) -> Agent:
        """The agent, watched."""
        agent: Agent = self.agent.build(spec)
        return agent._replace(
            update_statistics=functools.partial(_after_batch, agent.update_statistics)
        )


# By the number of updates before it. Compiling may run an update, too: the first takes its place.
_given: dict[int, Given] = {}


def _after_batch(
    update_statistics: Callable[..., tuple[AgentState, Tree]],
    state: AgentState,
    sequence: Sequence,
    mean: Callable[[Tree], Tree],
) -> tuple[AgentState, Tree]:
    steps = sequence.steps
    jax.debug.callback(_note, state.updates, steps.version, steps.timestep.observation)
    return update_statistics(state, sequence, mean)


def _note(updates: Array, version: Array, observation: Array) -> None:
    _given[int(updates)] = Given(np.array(version), np.array(observation))


def bounds_of(config: Config) -> Bounds:
    """See docs/agents.md, the on-policy queue."""
    if config.learning.schedule == "synchronous":
        return Bounds(0, 0)
    slots, batch = config.serving.training_slots, config.learning.batch_sequences
    publish_every = config.learning.publish_every_updates
    row = config.replay.lag_bound(
        training_slots=slots, batch_sequences=batch, publish_every_updates=publish_every
    )
    ahead = config.replay.ahead_updates + publish_every
    return Bounds(row, min(row, ahead + (slots - 2) // batch))


def judged(given: Mapping[int, Given], bounds: Bounds) -> dict[str, int]:
    """The fields of `Lag` that count, from what updates were given, by the updates before each."""
    lags = np.stack([updates - each.version for updates, each in given.items()])
    rows = np.concatenate(
        [each.observation.reshape(each.version.size, -1) for each in given.values()]
    )
    completing = lags[:, -1]
    is_wrong = (lags < 0) | (lags > bounds.row)
    is_wrong[:, -1] |= completing > bounds.completing
    return {
        "updates": len(given),
        "rows": lags.size,
        "shared": len(rows) - len(np.unique(rows, axis=0)),
        "exceptions": int(is_wrong.sum()),
        "largest": int(lags.max()),
        "largest_completing": int(completing.max()),
    }


def measured(name: str, schedule: Schedule, updates: int, is_starved: bool) -> Lag:
    """Trains for about `updates` updates, which this process must not have done before."""
    config = config_io.load(name)
    window, batch = config.agent.window, config.learning.batch_sequences
    ahead = config.replay.ahead_updates + config.learning.publish_every_updates
    config = dataclasses.replace(
        config,
        agent=Watched(agent=config.agent),
        replay=dataclasses.replace(config.replay, max_lag_updates=ahead + 1),
        serving=dataclasses.replace(config.serving, evaluation_slots=2),
        learning=dataclasses.replace(
            config.learning, schedule=schedule, total_steps=updates * batch * window.length
        ),
        evaluation=dataclasses.replace(config.evaluation, target_return=None),
        logging=dataclasses.replace(config.logging, learning_curve=False),
    )
    with tempfile.TemporaryDirectory() as folder, env_servers.socket_address() as address:
        serving = dataclasses.replace(config.serving, bind=address)
        config, fleet = env_servers.plan(dataclasses.replace(config, serving=serving))
        commands = env_servers.commands(
            fleet, config.environment, address=address, logs=Path(folder) / "logs"
        )
        starving = _starving() if is_starved else contextlib.nullcontext()
        with Supervisor(commands, restarts=0), starving:
            train(config, workdir=Path(folder) / "run")
        stale = _stale_rows(Path(folder) / "run")
    jax.effects_barrier()
    assert sorted(_given) == list(range(len(_given))), "an update was not written down"
    bounds = bounds_of(config)
    return Lag(
        config=name,
        schedule=schedule,
        stale=stale,
        bound=bounds.row,
        bound_completing=bounds.completing,
        **judged(_given, bounds),
    )


@contextlib.contextmanager
def _starving() -> Iterator[None]:
    """After the first update one env server of this process is stopped most of the time."""
    is_over = threading.Event()

    def starve() -> None:
        while not is_over.wait(_RUNNING_SECONDS):
            if not _given or not (servers := descendants(os.getpid(), "envs_server")):
                continue
            with contextlib.suppress(ProcessLookupError):
                os.kill(min(servers), signal.SIGSTOP)
                is_over.wait(_STOPPED_SECONDS)
                os.kill(min(servers), signal.SIGCONT)

    thread = threading.Thread(target=starve)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _stale_rows(run: Path) -> int:
    """As the ledger has them at the end of a run."""
    records = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    (stale,) = [record["stale"] for record in records if record.get("kind") == "ledger"]
    return int(stale)


@dataclass(frozen=True, kw_only=True)
class LagOptions:
    """Looks at the lag of every trained row, and prints a table.

    Attributes:
      updates: of each run.
      starved: asynchronous alone, and one of two env servers is stopped for 1.5 of every 2 s.
      json: file for the numbers, with machine, versions and commit.
    """

    updates: int = 200
    starved: bool = False
    json: Path | None = None


def main() -> int:
    """0 if no row was an exception and none was shared, else 1."""
    options = tyro.cli(LagOptions, prog="python -m tests.benchmarks.lag", description=__doc__)
    lags = []
    context = multiprocessing.get_context("spawn")
    for name in _CONFIGS:
        for schedule in _SCHEDULES[options.starved :]:
            with ProcessPoolExecutor(1, context) as pool:
                given = name, schedule, options.updates, options.starved
                lags.append(pool.submit(measured, *given).result())
    Console().print(_table(lags))
    if options.json is not None:
        written = {"machine": machine.describe(), "lags": list(map(dataclasses.asdict, lags))}
        options.json.write_text(json.dumps(written, indent=2) + "\n")
    return int(any(lag.exceptions or lag.shared for lag in lags))


def _table(lags: list[Lag]) -> Table:
    names = [field.name for field in dataclasses.fields(Lag)]
    table = Table(*(name.replace("_", " ") for name in names))
    for lag in lags:
        table.add_row(*(str(getattr(lag, name)) for name in names))
    return table


if __name__ == "__main__":
    sys.exit(main())
