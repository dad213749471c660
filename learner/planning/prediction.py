"""How fast environments step that do not exist yet, and what that takes."""

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from learner.planning.batching import Batching, batching, batching_in_step
from learner.planning.coldness import cold_share
from learner.planning.costs import Costs
from learner.planning.demand import Demand, Machines
from learner.planning.queueing import Station, throughput

_MOST_ROUNDS = 100
_TOLERANCE = 1e-5


class Prediction(NamedTuple):
    """What a fleet would do.

    Attributes:
      steps_per_second: of all environments together.
      messages_per_second: that the learner answers.
      messages_per_batch: on average.
      answer_seconds: from the end of a group's step to the start of its next one, on average.
      learner_cores, env_server_cores: of processors, all env servers together; a learner's cores
        include its devices where all share one machine.
      loads: how much of each resource is in use, by its name, 0 to 1.
    """

    steps_per_second: float
    messages_per_second: float
    messages_per_batch: float
    answer_seconds: float
    learner_cores: float
    env_server_cores: float
    loads: Mapping[str, float]

    @property
    def cores(self) -> float:
        """Of learner and env servers."""
        return self.learner_cores + self.env_server_cores


INTERPRETER = "learner's interpreter"
ACTING = "threads that act"
DEVICES = "devices"
CORES = "cores"
NETWORK = "network"
STEPPING = "env servers' stepping"


class _Message(NamedTuple):
    """Seconds that one message takes of each resource."""

    interpreter: float
    devices: float
    env_server: float

    @property
    def all(self) -> float:
        return sum(self)


def _alone(costs: Costs, demand: Demand) -> float:
    """From the end of a group's step to the start of its next one, if nobody else is there."""
    more = demand.rows - 1
    return (
        costs.answer
        + more * (costs.learner_row + costs.env_row + costs.act_row)
        + demand.message_bytes * (costs.learner_byte + costs.env_byte)
    )


def _overhead(costs: Costs, demand: Demand) -> float:
    """What an env server computes for a message besides its environments' steps."""
    return costs.env_message + demand.rows * costs.env_row + demand.message_bytes * costs.env_byte


def predict(costs: Costs, demand: Demand, machines: Machines) -> Prediction:
    """How fast the environments step, and what that takes.

    A group steps, waits for its actions, and steps again. If it never had to stand in line, that
    would take step + answer + W, with the W of `batching`: then N messages that are under way make
    X = N / (step + answer + W) messages a second, which is what latency alone allows. Where
    messages wait for each other is a closed network: of these seconds each message spends its
    demand at each station, and the rest wherever it waits for nobody:

        X = throughput(stations, Z = step + answer + W - Σ Dᵢ, N)

    The stations are the learner's interpreter, which one thread has at a time; the devices; and,
    where all share one machine, its cores, which the interpreter needs too: Z gives back what is
    counted at both, and may be less than nothing. How many messages share a batch depends on X, and
    the demand of each on that, so X is the fixed point. Besides it is at most

        env servers / (rows · step + overhead)       an env server steps one group at a time
        bytes per second / bytes of a message        the network's
        messages of a batch / seconds of it          of each thread that acts.

    Approximate: stations are taken for exponential, and the answer of one message alone is
    measured, which others make shorter, as cores are awake, or longer. docs/scaling.md compares.
    """
    step = demand.rows * demand.step_seconds
    most = min(
        demand.env_servers / (step + _overhead(costs, demand)),
        machines.network_bytes_per_second / max(demand.message_bytes, 1e-9),
    )
    answer = _alone(costs, demand)
    rate = min(most, demand.messages / (step + answer))
    for _ in range(_MOST_ROUNDS):
        before = rate
        batch = _batch(costs, demand, machines, rate)
        message = _message(costs, demand, machines, batch, rate)
        stations = list(_stations(message, machines))
        alone = step + answer + batch.wait_seconds
        rest = alone - sum(station.demand_seconds for station in stations)
        reached = throughput(stations, delay_seconds=rest, customers=demand.messages)
        limits = (each.servers / max(each.demand_seconds, 1e-12) for each in stations)
        acting = batch.messages / max(_act_seconds(costs, demand, batch.messages), 1e-12)
        rate = (rate + min(most, reached, acting * machines.acting, *limits)) / 2
        if abs(rate - before) <= _TOLERANCE * before:
            break
    return _prediction(costs, demand, machines, rate)


def _batch(costs: Costs, demand: Demand, machines: Machines, rate: float) -> Batching:
    free = _free_batch(costs, demand, rate)
    if not demand.equal_steps:
        return free
    # The larger a batch, the less each message takes, and the closer they come together.
    batch = free
    for _ in range(_MOST_ROUNDS):
        before = batch.messages
        message = _message(costs, demand, machines, batch, rate)
        cores = machines.shared_cores
        spacing = message.all / cores if cores else message.interpreter
        batch = batching_in_step(
            max(spacing, 1e-12),
            deadline_seconds=demand.batch_deadline_seconds,
            target=_target(demand),
        )
        if abs(batch.messages - before) <= _TOLERANCE * before:
            break
    return max(free, batch)


def _target(demand: Demand) -> int:
    """Messages at which a batch is due at once: half of the environments, see `free_running`."""
    return max(1, math.ceil(demand.messages / 2))


def _free_batch(costs: Costs, demand: Demand, rate: float) -> Batching:
    """The larger a batch, the longer it takes, and the longer the next one grows meanwhile."""
    batch = Batching(1.0, 0.0)
    for _ in range(_MOST_ROUNDS):
        before = batch.messages
        batch = batching(
            rate,
            service_seconds=_act_seconds(costs, demand, before),
            deadline_seconds=demand.batch_deadline_seconds,
            target=_target(demand),
        )
        batch = batch._replace(messages=min(batch.messages, demand.messages))
        if abs(batch.messages - before) <= _TOLERANCE * before:
            break
    return batch


def _act_seconds(costs: Costs, demand: Demand, messages: float) -> float:
    """Of the thread that acts on a batch of so many messages."""
    more = (messages - 1) * costs.act_message
    return costs.act + more + messages * demand.rows * costs.act_row


def _of_message(costs: Costs, demand: Demand) -> float:
    """What a message takes of the learner's processor, whatever batch it is in."""
    return (
        costs.learner_message
        + demand.rows * costs.learner_row
        + demand.message_bytes * costs.learner_byte
    )


def _message(
    costs: Costs, demand: Demand, machines: Machines, batch: Batching, rate: float
) -> _Message:
    rows, cycle = demand.rows, demand.messages / rate
    # Who comes with others, and is not the first of them, finds a learner that is awake.
    together = batch.messages if demand.equal_steps else 1.0
    cold = cold_share(cycle, demand.messages / together)
    of_batch = costs.learner_batch + costs.learner_cold * cold
    # Who shares a machine keeps its cores awake.
    env_cold = cold / together if machines.shared_cores else cold_share(cycle, demand.groups)
    return _Message(
        interpreter=_of_message(costs, demand) + of_batch / batch.messages,
        devices=rows * (costs.act_row + costs.update / demand.steps_per_update),
        env_server=_overhead(costs, demand)
        + costs.env_cold * env_cold
        + rows * demand.step_cpu_seconds,
    )


def _stations(message: _Message, machines: Machines) -> Iterator[Station]:
    yield Station(INTERPRETER, message.interpreter, 1)
    if machines.shared_cores:
        yield Station(CORES, message.all, machines.shared_cores)
    else:
        yield Station(DEVICES, message.devices, machines.devices)


def _prediction(costs: Costs, demand: Demand, machines: Machines, rate: float) -> Prediction:
    batch = _batch(costs, demand, machines, rate)
    message = _message(costs, demand, machines, batch, rate)
    step = demand.rows * demand.step_seconds
    on_processor = message.devices if machines.shared_cores else 0.0
    learner_cores = costs.learner_at_rest + rate * (message.interpreter + on_processor)
    env_server_cores = demand.env_servers * costs.env_at_rest + rate * message.env_server
    stepping = step + _overhead(costs, demand)
    act_seconds = _act_seconds(costs, demand, batch.messages)
    loads = {
        INTERPRETER: rate * message.interpreter,
        ACTING: rate * act_seconds / batch.messages / machines.acting,
        NETWORK: rate * demand.message_bytes / machines.network_bytes_per_second,
        STEPPING: rate * stepping / demand.env_servers,
    }
    if machines.shared_cores:
        loads[CORES] = (learner_cores + env_server_cores) / machines.shared_cores
    else:
        loads[DEVICES] = rate * message.devices / machines.devices
    return Prediction(
        steps_per_second=rate * demand.rows,
        messages_per_second=rate,
        messages_per_batch=batch.messages,
        answer_seconds=demand.messages / rate - step,
        learner_cores=learner_cores,
        env_server_cores=env_server_cores,
        loads=loads,
    )
