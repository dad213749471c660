"""How many messages share a batch, and how long they wait for each other."""

import math
from typing import NamedTuple


class Batching(NamedTuple):
    """What batches do with messages.

    Attributes:
      messages: of a batch, on average.
      wait_seconds: from a message's arrival until its batch is due, on average.
    """

    messages: float
    wait_seconds: float


def batching(
    rate: float, *, service_seconds: float, deadline_seconds: float, target: float
) -> Batching:
    """Messages arrive at λ = `rate` a second, each at any time; one batch is acted on at a time.

    The batch before takes T. The oldest message of this one arrived X after it was taken, X being
    exponential with mean 1/λ, and waits for D. So batches are max(T, X + D) apart, and have

        k = λ E[max(T, X + D)] = 1 + λD                      where T ≤ D
                               = λT + exp(-λ(T - D))          where T > D

    messages. The oldest waits for D, the others arrive at any time of the same D. A batch is also
    due as soon as `target` messages wait: then D is the (target - 1)/λ that these take.

    Args:
      rate: messages a second, λ.
      service_seconds: T.
      deadline_seconds: the longest that a message may wait for others.
      target: messages at which a batch is due at once, at least 1; see `free_running`.
    """
    window = min(deadline_seconds, (target - 1) / rate)
    if service_seconds <= window:
        messages = 1 + rate * window
    else:
        messages = rate * service_seconds + math.exp(-rate * (service_seconds - window))
    return _of(messages, window)


def batching_in_step(spacing_seconds: float, *, deadline_seconds: float, target: float) -> Batching:
    """Steps that take exactly as long as each other: whose messages shared a batch end together.

    Their messages arrive one after another, `spacing_seconds` s apart, for as long as the oldest
    waits, which is D: 1 + D / s share a batch. See `batching` for the rest.
    """
    window = min(deadline_seconds, (target - 1) * spacing_seconds)
    return _of(1 + window / spacing_seconds, window)


def _of(messages: float, window: float) -> Batching:
    """The oldest waits for `window` seconds, each other for half of that on average."""
    return Batching(messages, window * (1 + (messages - 1) / 2) / messages)
