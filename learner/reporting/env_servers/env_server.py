"""One env server, as the learner sees it."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from learner.reporting.status import EnvServerState, EnvServerStatus

# Below this a step is on its way; beyond it the learner waits.
_WAITING_SECONDS = 1.0
# The first few failures are each reported, then at most one in this many seconds.
_FIRST_FAILURES = 3
_FAILURE_SECONDS = 30.0


class Turn(NamedTuple):
    """A group at one moment.

    Attributes:
      environments: in it.
      is_training: what for.
      sequence: steps that have arrived.
      is_owed: whether its env server has the actions, and has not sent the next step.
      owed_since: when it got them, by the clock; 0 for the first step, which has no actions.
    """

    environments: int
    is_training: bool
    sequence: int
    is_owed: bool
    owed_since: float = 0.0


class Arrival(NamedTuple):
    """An env server to which slots were just leased.

    Attributes:
      name: what it says of itself, `host:pid`.
      offered: environments on offer; it may have got fewer.
      training, evaluation: environments of each role.
      groups: in how many groups.
      key: of its lease.
      earlier: keys of leases that are over for it, or for the one before it on its machine.
      quarantined, quarantine: environments that it goes on without, and why the newest of them.
    """

    name: str
    offered: int
    training: int
    evaluation: int
    groups: int
    key: int = 0
    earlier: Collection[int] = ()
    quarantined: int = 0
    quarantine: str = ""

    @property
    def environments(self) -> int:
        """All that it has got."""
        return self.training + self.evaluation


@dataclass
class EnvServer:
    """What is known of one; times are those of any clock. Not thread-safe.

    Attributes:
      name: unique among those that are there.
      arrival: what it got.
      state, since: see EnvServerStatus.
      before: who was there in its place, if anybody.
      failures, last_failure: see EnvServerStatus.
      left_because: see EnvServerStatus.
      was_ready: whether its environments were built.
      has_said_why: whether an event has said why it leaves.
      has_failed: whether it leaves because an environment has failed.
      waiting_seconds: by its number, how long a group has owed a step; from one second on.
      hung: numbers of the groups that have exceeded the deadline.
    """

    name: str
    arrival: Arrival
    since: float
    before: "EnvServer | None" = None
    state: EnvServerState = "building"
    failures: int = 0
    last_failure: str = ""
    left_because: str = ""
    was_ready: bool = False
    has_said_why: bool = False
    has_failed: bool = False
    waiting_seconds: dict[int, float] = field(default_factory=dict)
    hung: frozenset[int] = frozenset()
    _next_failure: float = -math.inf
    _num_steps: int = 0
    _steps_per_second: float = 0.0
    # Of each group that owes a step: its sequence number, and when that was first seen.
    _owing: dict[int, tuple[int, float]] = field(default_factory=dict)

    @property
    def sizes(self) -> dict[str, int]:
        """What it has, as an event says it."""
        return {
            "environments": self.arrival.environments,
            "training": self.arrival.training,
            "evaluation": self.arrival.evaluation,
        }

    def begin(self, now: float) -> None:
        """Its environments are built."""
        self.was_ready = True
        self._be("live", now)

    def succeed(self, before: "EnvServer") -> None:
        """It takes the place of one that has left, and goes on counting."""
        self.before, before.before = before, None
        self.failures, self.last_failure = before.failures, before.last_failure
        self._next_failure = before._next_failure

    def may_say_failure(self, now: float) -> bool:
        """Whether a failure is to be told: of many, one now and then."""
        if self.failures > _FIRST_FAILURES and now < self._next_failure:
            return False
        self._next_failure = now + _FAILURE_SECONDS
        return True

    def look(self, turns: Sequence[Turn], now: float, seconds: float) -> None:
        """Takes whose turn it is in each group, `seconds` after the last look."""
        num_steps = sum(turn.sequence * turn.environments for turn in turns)
        self._steps_per_second = (num_steps - self._num_steps) / seconds if seconds else 0.0
        self._num_steps = num_steps
        # A group that owes the same step as at an earlier look has owed it all the time between.
        self._owing = {
            number: (
                turn.sequence,
                turn.owed_since or _since(self._owing.get(number), turn.sequence, now),
            )
            for number, turn in enumerate(turns)
            if turn.is_owed
        }
        waits = {number: now - since for number, (_, since) in self._owing.items()}
        self.waiting_seconds = {
            number: waited for number, waited in waits.items() if waited >= _WAITING_SECONDS
        }

    def hang(self, deadline_seconds: float, now: float) -> tuple[list[int], list[int]]:
        """Which groups hang since the last look, and which do so no longer."""
        waits, before = self.waiting_seconds, self.hung
        self.hung = frozenset(number for number in waits if waits[number] > deadline_seconds)
        self._be("hung" if self.hung else "live", now)
        return sorted(self.hung - before), sorted(before - self.hung)

    def leave(self, reason: str, now: float) -> None:
        """It is gone."""
        self.left_because = reason
        self.waiting_seconds, self.hung, self._steps_per_second = {}, frozenset(), 0.0
        self._be("left", now)

    def status(self, unix_time: float) -> EnvServerStatus:
        """What the outside sees; `unix_time`: when the clock was 0."""
        return EnvServerStatus(
            name=self.name,
            host=self.name.rpartition(":")[0],
            state=self.state,
            since_seconds=unix_time + self.since,
            groups=self.arrival.groups,
            environments=self.arrival.environments,
            training_slots=self.arrival.training,
            evaluation_slots=self.arrival.evaluation,
            steps_per_second=self._steps_per_second,
            failures=self.failures,
            last_failure=self.last_failure,
            waiting_seconds=max(self.waiting_seconds.values(), default=0.0),
            hung_groups=tuple(sorted(self.hung)),
            quarantined=self.arrival.quarantined,
            left_because=self.left_because,
        )

    def _be(self, state: EnvServerState, now: float) -> None:
        if self.state != state:
            self.state, self.since = state, now


def _since(before: tuple[int, float] | None, sequence: int, now: float) -> float:
    return now if before is None or before[0] != sequence else before[1]
