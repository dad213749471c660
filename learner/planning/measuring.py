"""What the parts of a system cost on this machine: a learner with one process of env servers."""

import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from learner.bench.measure import machine
from learner.bench.rigs.system import Interval, System
from learner.bench.scaling import constant, many_servers_commands
from learner.launch import env_servers
from learner.planning.coldness import cold_share
from learner.planning.costs import Costs
from seedrl.config import LaunchConfig

_FRAME = (84, 84)
_CAPACITY_STEPS = 20_000
# Of `Loads`.
_WIDE, _HEAVY = 3, 4


class Load(NamedTuple):
    """Env servers whose steps sleep.

    Attributes:
      connections: env servers, of one group each, in one process.
      num_envs: of each.
      step_seconds: that their common step sleeps.
      varies: whether a half to one and a half of that, at random.
      shape, dtype: of an observation.
    """

    connections: int = 1
    num_envs: int = 1
    step_seconds: float = 0.05
    varies: bool = False
    shape: tuple[int, ...] = (4,)
    dtype: str = "float32"

    @property
    def message_bytes(self) -> float:
        """Of the observations of a message."""
        width = 1 if self.dtype == "uint8" else 4
        count = 1
        for size in self.shape:
            count *= size
        return float(width * count * self.num_envs)


class Loads(NamedTuple):
    """The loads that tell costs apart.

    Attributes:
      alone: one environment.
      slow: that hardly ever steps.
      steady: that steps so often that no processor falls asleep.
      wide: with many in a message.
      heavy: whose messages are long.
      crowded: with many messages under way.
    """

    alone: Load = Load()
    slow: Load = Load(step_seconds=0.5)
    steady: Load = Load(step_seconds=0.003)
    wide: Load = Load(num_envs=64)
    heavy: Load = Load(num_envs=8, shape=_FRAME, dtype="uint8")
    crowded: Load = Load(connections=32, step_seconds=0.03, varies=True)


class Measured(NamedTuple):
    """What a load was seen to take.

    Attributes:
      messages_per_second: that were answered.
      messages_per_batch: on average.
      learner_cores, env_server_cores: of processors, all env servers together.
      act_seconds: from staging a batch to handing over its actions.
    """

    messages_per_second: float
    messages_per_batch: float
    learner_cores: float
    env_server_cores: float
    act_seconds: float


def measured(seconds: float = 4.0) -> Costs:
    """The costs of this machine's parts; `seconds` for each of six loads."""
    loads = Loads()
    found = [measure(load, seconds) for load in loads]
    date = time.strftime("%Y-%m-%d", time.gmtime())
    return costs_of(loads, found, measured=f"measured on {date}: {machine.in_words()}")


def measure(load: Load, seconds: float) -> Measured:
    """What that load takes here, measured for `seconds` after all its env servers have started."""
    launch = LaunchConfig(env_servers=load.connections, envs_per_server=load.num_envs, groups=1)
    arguments = {
        "shape": load.shape,
        "dtype": load.dtype,
        "step_seconds": load.step_seconds,
        "varies": load.varies,
    }
    config = constant(arguments, launch, capacity_steps=_CAPACITY_STEPS)
    # What env servers take is that of one with a process of its own.
    commands = env_servers.commands if load.connections == 1 else many_servers_commands
    with System(config, commands) as system:
        return of_interval(system.run(seconds))


def of_interval(interval: Interval) -> Measured:
    """What a system was seen to take."""
    others = interval.cpu_seconds - interval.learner_cpu_seconds
    return Measured(
        messages_per_second=interval.messages / interval.seconds,
        messages_per_batch=interval.messages / interval.batches,
        learner_cores=interval.learner_cpu_seconds / interval.seconds,
        env_server_cores=others / interval.seconds,
        act_seconds=1e-3 * interval.metrics["inference_ms"],
    )


def costs_of(loads: Loads, found: Sequence[Measured], *, measured: str) -> Costs:
    """The costs that explain what the loads took.

    A message of n rows and B bytes takes  message + n·row + B·byte + (batch + s·cold) / k  of the
    learner's processor, where k messages share a batch and s is its `cold_share`, and the same
    without the batch of the env server's. Both also take `at_rest` for each second. So, of `Loads`:

        slow, alone, steady   at_rest, cold, and what a message alone takes besides, its batch
                              included: three equations
        alone, wide           row; the bytes of so few numbers count as rows
        alone, heavy          byte
        steady, crowded       batch: what a message costs less if k of them share one

    No cost is less than nothing: what noise makes so is taken for none.
    """
    alone, crowded = found[0], found[-1]
    learner = _costs([each.learner_cores for each in found], loads, found)
    env_server = _costs([each.env_server_cores for each in found], loads, found)
    k = max(crowded.messages_per_batch, 1.01)
    of_crowded = (crowded.learner_cores - learner.at_rest) / crowded.messages_per_second
    batch = min(max(0.0, (learner.alone - of_crowded) / (1 - 1 / k)), learner.alone)
    return Costs(
        learner_message=max(0.0, learner.alone - learner.row - batch),
        learner_row=learner.row,
        learner_byte=learner.byte,
        learner_batch=batch,
        learner_cold=learner.cold,
        learner_at_rest=learner.at_rest,
        env_message=max(0.0, env_server.alone - env_server.row),
        env_row=env_server.row,
        env_byte=env_server.byte,
        env_cold=env_server.cold,
        env_at_rest=env_server.at_rest,
        answer=max(0.0, 1 / alone.messages_per_second - loads.alone.step_seconds),
        act=alone.act_seconds,
        act_message=max(0.0, crowded.act_seconds - alone.act_seconds) / (k - 1),
        measured=measured,
    )


class _Side(NamedTuple):
    """Seconds of one side's processor."""

    at_rest: float
    cold: float
    alone: float
    row: float
    byte: float


def _costs(cores: Sequence[float], loads: Loads, found: Sequence[Measured]) -> _Side:
    rates = [each.messages_per_second for each in found]
    shares = [cold_share(1 / rate, 1) for rate in rates]
    equations = [[1.0, rate, rate * share] for rate, share in zip(rates, shares, strict=True)]
    at_rest, of_message, cold = (
        max(0.0, float(each)) for each in np.linalg.solve(equations[:3], cores[:3])
    )

    def more(number: int) -> float:
        """What a message of that load takes besides what one alone does."""
        of_load = (cores[number] - at_rest) / rates[number]
        return of_load - of_message - shares[number] * cold

    row = max(0.0, more(_WIDE) / (loads.wide.num_envs - 1))
    byte = max(0.0, more(_HEAVY) - (loads.heavy.num_envs - 1) * row) / loads.heavy.message_bytes
    return _Side(at_rest, cold, of_message, row, byte)
