"""Which machines a fleet needs, and what holds it up."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from learner.planning.costs import Costs
from learner.planning.demand import Demand, Machines
from learner.planning.prediction import (
    ACTING,
    DEVICES,
    INTERPRETER,
    NETWORK,
    STEPPING,
    Prediction,
    predict,
)
from seedrl.errors import ConfigError

ANSWERS = "answers"
# What would help where a resource binds.
_RELIEF: Mapping[str, str] = {
    INTERPRETER: "more environments in each message (--envs-per-server), or more learner hosts, "
    "would relieve it",
    ACTING: "more environments in each message (--envs-per-server), more devices that act, or more "
    "learner hosts, would relieve it",
    DEVICES: "faster devices, more of them (--accelerator NAME:N), or a lower replay ratio would "
    "relieve it",
    NETWORK: "more learner hosts or a faster network (--network-gbit) would relieve it",
    STEPPING: "only more environments, or faster ones, make more steps",
    ANSWERS: "more groups, or more environments in an env server, would have it step meanwhile",
}
# The same where one thread acts and learns (learning.regime): one host has it, one device acts, and
# groups wait for each other.
_RELIEF_OF_ONE_HOST: Mapping[str, str] = {
    **_RELIEF,
    INTERPRETER: "more environments in each message (--envs-per-server) would relieve it",
    ACTING: "more environments in each message (--envs-per-server) would relieve it",
    NETWORK: "a faster network (--network-gbit) would relieve it",
    STEPPING: "fewer environments in each env server (--envs-per-server), or faster ones, make "
    "shorter rounds",
    ANSWERS: "stepping, acting and learning take turns: whatever gets shorter makes more steps",
}
_MEANING: Mapping[str, str] = {
    INTERPRETER: "the interpreter of each learner process",
    ACTING: "the thread that acts, of each device",
    DEVICES: "the learner's devices",
    NETWORK: "the network into each learner host",
    STEPPING: "stepping the environments",
    ANSWERS: "waiting for answers",
}


class Sizing(NamedTuple):
    """The learner hosts of a fleet, and what it does with them.

    Attributes:
      hosts: of the learner.
      prediction: of each host with its part of the env servers.
      regime: of learning; any but `asynchronous` is for one host.
    """

    hosts: int
    prediction: Prediction
    regime: str = "asynchronous"

    @property
    def steps_per_second(self) -> float:
        """Of all hosts."""
        return self.hosts * self.prediction.steps_per_second

    @property
    def env_server_cores(self) -> int:
        """Of all hosts' env servers."""
        return math.ceil(self.hosts * self.prediction.env_server_cores)

    @property
    def binding(self) -> str:
        """The resource that is most in use; of several hosts, what makes them several.

        An env server that waits for answers most of the time while nothing else is in use for half
        of it is held up by latency alone.
        """
        loads = self.prediction.loads
        names = [name for name in loads if self.hosts == 1 or name != STEPPING]
        busiest = max(names, key=lambda name: loads[name])
        return busiest if self.hosts > 1 or loads[busiest] >= 0.5 else ANSWERS


def size(
    costs: Costs,
    demand: Demand,
    machines: Callable[[int], Machines],
    *,
    headroom: float,
    batch_sequences: int,
    hosts: int = 0,
    regime: str = "asynchronous",
) -> Sizing:
    """The fewest hosts that use no resource of the learner's for more than `headroom` of the time.

    Each has an equal part of the env servers. The devices of all hosts must divide the batch of an
    update.

    Args:
      machines: of each of that many hosts.
      hosts: that many instead, whatever they carry; 0 finds them.
      regime: of learning; any but `asynchronous` is for one host.

    Raises ConfigError if no number of hosts is enough, or the regime does not allow that many.
    """
    is_alone = regime != "asynchronous"
    if is_alone and hosts > 1:
        raise ConfigError(
            f"--hosts: learning.regime {regime} is for one host; expected 1, or 0, got {hosts}"
        )
    if hosts:
        return Sizing(hosts, _of_one_host(costs, demand, machines(hosts), hosts), regime)
    most = 1 if is_alone else min(demand.env_servers, batch_sequences)
    numbers = [n for n in range(1, most + 1) if batch_sequences % (n * machines(n).learning) == 0]
    for number in numbers:
        prediction = _of_one_host(costs, demand, machines(number), number)
        if _learner_load(prediction) <= headroom:
            return Sizing(number, prediction, regime)
    if is_alone:
        raise ConfigError(
            f"--environments: one host does not carry {demand.environments:,} at {headroom:g} of "
            f"its resources, and learning.regime {regime} is for one host; --hosts 1 shows what it "
            "does and what binds"
        )
    raise ConfigError(
        f"--environments: no learner of 1 to {max(numbers, default=1)} hosts, all of whose "
        f"devices that learn must divide learning.batch_sequences ({batch_sequences}), carries "
        f"{demand.environments:,} at {headroom:g} of its resources; --hosts N shows what one does"
    )


def _of_one_host(costs: Costs, demand: Demand, machines: Machines, hosts: int) -> Prediction:
    part = dataclasses.replace(demand, environments=math.ceil(demand.environments / hosts))
    return predict(costs, part, machines)


def _learner_load(prediction: Prediction) -> float:
    return max(load for name, load in prediction.loads.items() if name != STEPPING)


def in_words(sizing: Sizing) -> str:
    """One sentence: what binds, and what would relieve it."""
    binding = sizing.binding
    load = sizing.prediction.loads.get(binding)
    share = "" if load is None else f", in use {100 * load:.0f} % of the time"
    relief = _RELIEF if sizing.regime == "asynchronous" else _RELIEF_OF_ONE_HOST
    return f"What binds is {_MEANING[binding]}{share}; {relief[binding]}."
