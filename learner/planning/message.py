"""What a message takes: of processors, of devices, and of time."""

from typing import NamedTuple

from learner.planning.batching import Batching
from learner.planning.coldness import cold_share
from learner.planning.costs import Costs
from learner.planning.demand import Demand, Machines


class Message(NamedTuple):
    """Seconds that one message takes of each resource."""

    interpreter: float
    devices: float
    env_server: float

    @property
    def all(self) -> float:
        """Where all of them are the cores of one machine."""
        return sum(self)


def seconds_alone(costs: Costs, demand: Demand) -> float:
    """From the end of a group's step to the start of its next one, if nobody else is there."""
    more = demand.rows - 1
    return (
        costs.answer
        + more * (costs.learner_row + costs.env_row + costs.act_row)
        + demand.message_bytes * (costs.learner_byte + costs.env_byte)
    )


def seconds_to_send(costs: Costs, demand: Demand) -> float:
    """What an env server computes for a message besides its environments' steps."""
    return costs.env_message + demand.rows * costs.env_row + demand.message_bytes * costs.env_byte


def seconds_to_step(costs: Costs, demand: Demand) -> float:
    """What an env server that never waits for answers takes for each message.

    Groups that step at once wait side by side. What they compute takes turns: the process has one
    interpreter. An environment that computes outside of it is faster than that.
    """
    sent = seconds_to_send(costs, demand)
    step, computed = demand.rows * demand.step_seconds, demand.rows * demand.step_cpu_seconds
    return max((step + sent) / demand.groups_at_once, computed + sent)


def seconds_to_act(costs: Costs, demand: Demand, messages: float) -> float:
    """Of the thread that acts, on a batch of that many messages."""
    more = (messages - 1) * costs.act_message
    return costs.act + more + messages * demand.rows * costs.act_row


def seconds_to_read(costs: Costs, demand: Demand) -> float:
    """What a message takes of the learner's processor, whatever batch it is in."""
    return (
        costs.learner_message
        + demand.rows * costs.learner_row
        + demand.message_bytes * costs.learner_byte
    )


def message_of(
    costs: Costs, demand: Demand, machines: Machines, batch: Batching, rate: float
) -> Message:
    """What one of `rate` messages a second takes, in batches of that size on average."""
    rows, cycle = demand.rows, demand.messages / rate
    # Who comes with others, and is not the first of them, finds a learner that is awake.
    together = batch.messages if demand.equal_steps or demand.in_rounds else 1.0
    cold = cold_share(cycle, demand.messages / together)
    of_batch = costs.learner_batch + costs.learner_cold * cold
    # Who shares a machine keeps its cores awake.
    env_cold = cold / together if machines.shared_cores else cold_share(cycle, demand.groups)
    # A device that only acts has a thread that waits for it: that is a limit of its own.
    act_row = 0.0 if machines.act_elsewhere else costs.act_row
    return Message(
        interpreter=seconds_to_read(costs, demand) + of_batch / batch.messages,
        devices=rows * (act_row + costs.update / demand.steps_per_update),
        env_server=seconds_to_send(costs, demand)
        + costs.env_cold * env_cold
        + rows * demand.step_cpu_seconds,
    )
