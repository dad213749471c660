"""Processor time of a step in both arms, from costs of parts that were measured apart.

Of E environments to a message, m messages to a batch, N environments to an actor, K steps to a
rollout, o bytes to an observation, p bytes of parameters:

    central   = message(m) / E + batch(m) / (m E) + o (message_byte + batch_byte)
    broadcast = actor + (exchange + p params_byte) / (N K) + o (actor_byte + rollout_byte)

The cheaper arm is the winner: its actors and learner leave more of the cores.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.benchmarks.broadcast.workload import (
    GROUP_ENVS,
    NUM_ENVS,
    NUM_SERVERS,
    PAGE_STEPS,
    num_parameters,
)

ROLLOUT_STEPS = NUM_ENVS * PAGE_STEPS
# Rows of the programs for up to two messages and for up to four; batches are padded to one of them.
BATCH_ROWS = (2 * GROUP_ENVS, 4 * GROUP_ENVS)


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Processor seconds, of all processes together.

    Attributes:
      message: a step of a group and its answer, which no network computes: one that comes while
        nothing else happens, and one of a full batch.
      message_byte: each byte of an observation in it.
      batch: acting on a batch and learning, by the network's width and the place in BATCH_ROWS.
      batch_byte: each byte of an observation in it.
      actor: a step of actors that send nothing, by width: with environments that take no time,
        and with some that sleep.
      actor_byte: each byte of an observation.
      exchange: a rollout that is sent and learned from, and an answer without parameters.
      rollout_byte: each byte of an observation in it.
      params_byte: each byte of an answer.
      deadline_seconds: how long a step may wait for others of its batch.
    """

    message: tuple[float, float]
    message_byte: float
    batch: Mapping[int, tuple[float, float]]
    batch_byte: float
    actor: Mapping[int, tuple[float, float]]
    actor_byte: float
    exchange: float
    rollout_byte: float
    params_byte: float
    deadline_seconds: float


def central(costs: Costs, width: int, num_bytes: int, step_seconds: float) -> float:
    """Of a step with central inference."""
    messages = messages_of_batch(costs, width, num_bytes, step_seconds)
    alone, together = costs.message
    message = alone + (together - alone) * (messages - 1) / (NUM_SERVERS - 1)
    sent = message / GROUP_ENVS + num_bytes * costs.message_byte
    return sent + _batch(costs, width, num_bytes, messages) / (messages * GROUP_ENVS)


def messages_of_batch(costs: Costs, width: int, num_bytes: int, step_seconds: float) -> float:
    """Messages of a batch, from 1 to one of each env server.

    The others are those that arrive while the first one waits, or while the batch before them is
    computed. An env server sends one in the time that it takes for a step.
    """
    period = step_seconds + costs.message[1] + GROUP_ENVS * num_bytes * costs.message_byte
    messages = 1.0
    for _ in range(20):  # a larger batch takes longer: to the fixed point
        waits = max(costs.deadline_seconds, _batch(costs, width, num_bytes, messages))
        messages = 1 + (NUM_SERVERS - 1) * min(1.0, waits / period)
    return messages


def _batch(costs: Costs, width: int, num_bytes: int, messages: float) -> float:
    rows = messages * GROUP_ENVS
    return costs.batch[width][rows > BATCH_ROWS[0]] + rows * num_bytes * costs.batch_byte


def broadcast(costs: Costs, width: int, num_bytes: int, step_seconds: float) -> float:
    """Of a step with broadcast parameters."""
    params_bytes = 4 * num_parameters(width)
    exchanged = (costs.exchange + params_bytes * costs.params_byte) / ROLLOUT_STEPS
    return (
        costs.actor[width][step_seconds > 0]
        + exchanged
        + num_bytes * (costs.actor_byte + costs.rollout_byte)
    )


def crossover(parameters: Sequence[int], ratios: Sequence[float]) -> float | None:
    """Number of parameters at which central / broadcast falls below 1; None if it never does.

    Between two of the numbers, which ascend, the ratio is taken for a power of the number.
    """
    for (small, above), (large, below) in itertools.pairwise(zip(parameters, ratios, strict=True)):
        if above > 1 >= below:
            return float(small * (large / small) ** (math.log(above) / math.log(above / below)))
    return None
