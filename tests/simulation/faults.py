"""What can go wrong, and how often."""

import random
from typing import NamedTuple


class Faults(NamedTuple):
    """How often each fault strikes: per message for the first five, else mean seconds between two.

    Attributes:
      lose_request, lose_reply: the message never arrives, and the connection breaks.
      duplicate: the message arrives twice (the transport asked again although it had arrived).
      delay: the message, and with it all that follow, arrives late.
      truncate: of a step only the first bytes arrive.
      kill: an env server dies, and is started again.
      freeze: an env server stands still, maybe for longer than the learner waits for it. What it
        sends afterwards over its old stream is a dead incarnation's.
      cut: a connection breaks; each side notices in its own time.
      restart_learner: the learner dies, and begins again from what it saved last.
      fail_save: of a save: the disk refuses it.
      crash: the host of an env server dies; what is started again has a log without the last steps.
    """

    lose_request: float = 0.0
    lose_reply: float = 0.0
    duplicate: float = 0.0
    delay: float = 0.0
    truncate: float = 0.0
    kill: float = 0.0
    freeze: float = 0.0
    cut: float = 0.0
    restart_learner: float = 0.0
    fail_save: float = 0.0
    crash: float = 0.0


_OFTEN = Faults(
    lose_request=0.02,
    lose_reply=0.02,
    duplicate=0.02,
    delay=0.1,
    truncate=0.01,
    kill=0.1,
    freeze=0.1,
    cut=0.1,
    restart_learner=0.3,
    fail_save=0.5,
    crash=0.1,
)


def draw(random_numbers: random.Random) -> Faults:
    """Any subset of the faults: one that always strikes would hide what the others can do."""
    return Faults(*(rate if random_numbers.random() < 0.4 else 0.0 for rate in _OFTEN))
