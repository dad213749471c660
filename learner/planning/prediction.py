"""How fast environments step that do not exist yet, and what that takes."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from learner.planning.batching import Batching, batching, batching_in_step
from learner.planning.costs import Costs
from learner.planning.demand import Demand, Machines
from learner.planning.message import (
    Message,
    message_of,
    seconds_alone,
    seconds_to_act,
    seconds_to_read,
    seconds_to_send,
    seconds_to_step,
)
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


def predict(costs: Costs, demand: Demand, machines: Machines) -> Prediction:
    """How fast the environments step, and what that takes."""
    rate = (_rate_in_rounds if demand.in_rounds else _rate)(costs, demand, machines)
    return _prediction(costs, demand, machines, rate)


def _rate(costs: Costs, demand: Demand, machines: Machines) -> float:
    """Messages a second of environments that wait for nobody.

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

        env servers / `seconds_to_step`              what env servers step
        bytes per second / bytes of a message        the network's
        messages of a batch / seconds of it          of each thread that acts.

    Approximate: stations are taken for exponential, and the answer of one message alone is
    measured, which others make shorter, as cores are awake, or longer. docs/scaling.md compares.
    """
    step = demand.rows * demand.step_seconds
    most = _most(costs, demand, machines)
    answer = seconds_alone(costs, demand)
    rate = min(most, demand.messages / (step + answer))
    for _ in range(_MOST_ROUNDS):
        before = rate
        batch = _batch(costs, demand, machines, rate)
        message = message_of(costs, demand, machines, batch, rate)
        stations = list(_stations(message, machines))
        alone = step + answer + batch.wait_seconds
        rest = alone - sum(station.demand_seconds for station in stations)
        reached = throughput(stations, delay_seconds=rest, customers=demand.messages)
        acting = batch.messages / max(seconds_to_act(costs, demand, batch.messages), 1e-12)
        lanes = _num_lanes(demand, machines)
        rate = (rate + min(most, reached, acting * lanes, *_limits(stations))) / 2
        if abs(rate - before) <= _TOLERANCE * before:
            break
    return rate


def _rate_in_rounds(costs: Costs, demand: Demand, machines: Machines) -> float:
    """Messages a second where a batch has all N of them, and is learned from before the next.

    All groups step, the learner reads their messages one by one, acts on all, answers, and learns
    while the first step of the next batch is under way:

        N / X = S + answer + (N - 1) · (what another message takes to read and act on)
              + max(0, L - S) / b

    where an env server's groups step in S, and every b batches updates of L seconds are due, whose
    work all devices share.

    Approximate: nothing that is read while others step is deducted; all are taken to step for the
    mean time, though the slowest decides.
    """
    stepping = demand.groups * seconds_to_step(costs, demand) - seconds_to_send(costs, demand)
    another = seconds_to_act(costs, demand, 2) - seconds_to_act(costs, demand, 1)
    another += seconds_to_read(costs, demand)
    updates_per_batch = demand.environments / demand.steps_per_update
    batches_per_update = demand.steps_per_update / demand.environments
    update = costs.update / (machines.shared_cores or machines.devices)
    learning = update * max(1.0, updates_per_batch)
    seconds = (
        stepping
        + seconds_alone(costs, demand)
        + (demand.messages - 1) * another
        + max(0.0, learning - stepping) / max(1.0, batches_per_update)
    )
    rate = min(_most(costs, demand, machines), demand.messages / seconds)
    message = message_of(costs, demand, machines, _batch(costs, demand, machines, rate), rate)
    return min(rate, *_limits(list(_stations(message, machines))))


def _most(costs: Costs, demand: Demand, machines: Machines) -> float:
    """Messages a second that env servers and the network allow."""
    return min(
        demand.env_servers / seconds_to_step(costs, demand),
        machines.network_bytes_per_second / max(demand.message_bytes, 1e-9),
    )


def _limits(stations: Sequence[Station]) -> Iterator[float]:
    """Messages a second that each of them serves at most."""
    return (each.servers / max(each.demand_seconds, 1e-12) for each in stations)


def _num_lanes(demand: Demand, machines: Machines) -> int:
    """Queues of the threads that act, see `learner.serving.batcher.Lane`; a message has one."""
    return min(machines.acting, demand.messages)


def _batch(costs: Costs, demand: Demand, machines: Machines, rate: float) -> Batching:
    """Of one lane."""
    if demand.in_rounds:
        return Batching(demand.messages, 0.0)
    lanes = _num_lanes(demand, machines)
    free = _free_batch(costs, demand, rate / lanes, demand.messages / lanes)
    if not demand.equal_steps:
        return free
    # The larger a batch, the less each message takes, and the closer they come together.
    batch = free
    for _ in range(_MOST_ROUNDS):
        before = batch.messages
        message = message_of(costs, demand, machines, batch, rate)
        cores = machines.shared_cores
        spacing = message.all / cores if cores else message.interpreter
        # Messages of other lanes come in between, as far as they keep it busy.
        others = rate * spacing * (lanes - 1) / lanes
        batch = batching_in_step(
            max(spacing / max(1 - others, 1 / lanes), 1e-12),
            deadline_seconds=demand.batch_deadline_seconds,
            target=_target(demand.messages / lanes),
        )
        if abs(batch.messages - before) <= _TOLERANCE * before:
            break
    return max(free, batch)


def _target(messages: float) -> int:
    """Messages at which a batch is due at once: half of the environments, see `free_running`."""
    return max(1, math.ceil(messages / 2))


def _free_batch(costs: Costs, demand: Demand, rate: float, messages: float) -> Batching:
    """The larger a batch, the longer it takes, and the longer the next one grows meanwhile.

    `rate`, `messages`: of a lane.
    """
    batch = Batching(1.0, 0.0)
    for _ in range(_MOST_ROUNDS):
        before = batch.messages
        batch = batching(
            rate,
            service_seconds=seconds_to_act(costs, demand, before),
            deadline_seconds=demand.batch_deadline_seconds,
            target=_target(messages),
        )
        batch = batch._replace(messages=min(batch.messages, messages))
        if abs(batch.messages - before) <= _TOLERANCE * before:
            break
    return batch


def _stations(message: Message, machines: Machines) -> Iterator[Station]:
    yield Station(INTERPRETER, message.interpreter, 1)
    if machines.shared_cores:
        yield Station(CORES, message.all, machines.shared_cores)
    else:
        yield Station(DEVICES, message.devices, machines.devices)


def _prediction(costs: Costs, demand: Demand, machines: Machines, rate: float) -> Prediction:
    batch = _batch(costs, demand, machines, rate)
    message = message_of(costs, demand, machines, batch, rate)
    on_processor = message.devices if machines.shared_cores else 0.0
    learner_cores = costs.learner_at_rest + rate * (message.interpreter + on_processor)
    env_server_cores = demand.env_servers * costs.env_at_rest + rate * message.env_server
    loads = {
        INTERPRETER: rate * message.interpreter,
        ACTING: rate / _acting_limit(costs, demand, machines),
        NETWORK: rate * demand.message_bytes / machines.network_bytes_per_second,
        STEPPING: rate * seconds_to_step(costs, demand) / demand.env_servers,
    }
    if machines.shared_cores:
        loads[CORES] = (learner_cores + env_server_cores) / machines.shared_cores
    else:
        loads[DEVICES] = rate * message.devices / machines.devices
    return Prediction(
        steps_per_second=rate * demand.rows,
        messages_per_second=rate,
        messages_per_batch=batch.messages,
        answer_seconds=demand.messages / rate - demand.rows * demand.step_seconds,
        learner_cores=learner_cores,
        env_server_cores=env_server_cores,
        loads=loads,
    )


def _acting_limit(costs: Costs, demand: Demand, machines: Machines) -> float:
    """Messages a second of threads that act, if each finds all of its lane waiting every time.

    Not of batches as they are: a thread that is never idle still has room while they can grow.
    """
    largest = demand.messages / _num_lanes(demand, machines)
    return demand.messages / max(seconds_to_act(costs, demand, largest), 1e-12)
