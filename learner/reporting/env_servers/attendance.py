"""Which env servers are there, since when, and what becomes of them."""

import math
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from learner.reporting.env_servers.env_server import Arrival, EnvServer, Turn
from learner.reporting.events import NOBODY, Listener
from learner.reporting.status import EnvServerStatus, Slots
from learner.reporting.wording import environments

# Of those that have left, and of refusals that are not said again.
_MOST_LEFT = 200
_MOST_REFUSALS = 1000
_MANY_IN_A_ROW = 10  # episodes of one slot: a round takes long enough to say what would help
_COUNTED = ("live", "waiting", "hung")


class EnvServers(NamedTuple):
    """What the book says at one moment.

    Attributes:
      servers: those that are there, then those that have left, latest first.
      training, evaluation: slots of each role.
      quarantined: environments that those who are there go on without.
      failures, refused: of environments, and connections that were turned away; in all.
    """

    servers: tuple[EnvServerStatus, ...] = ()
    training: Slots = Slots(total=0)
    evaluation: Slots = Slots(total=0)
    failures: int = 0
    quarantined: int = 0
    refused: int = 0


class Attendance:
    """Keeps the book of env servers, and says what becomes of them.

    Its methods are called when one comes or leaves, and once a second; never when one steps. The
    hub calls those of the first kind under its lock; they wait for nothing but `look`, which takes
    less than a millisecond. Leases go by their number, times are of any clock.
    """

    def __init__(
        self,
        listener: Listener = NOBODY,
        *,
        training_slots: int = 0,
        evaluation_slots: int = 0,
        step_deadline_seconds: float = 0.0,
        evaluation_episodes: int = 0,
    ):
        """Args not named here are those of `serving`; `listener` hears what happens.

        `evaluation_episodes`: of the longest round of evaluation.
        """
        self._lock = threading.RLock()  # guards all that follows
        self._listener = listener
        self._step_deadline_seconds = step_deadline_seconds or math.inf
        self._present: dict[int, EnvServer] = {}
        self._left: dict[str, EnvServer] = {}  # by name, who left last at the end
        self._refusals: set[tuple[str, str]] = set()
        self._has_explained = self._has_advised = False
        self._looked: float | None = None
        self._failures = self._num_refused = 0
        self._why_closed = ""
        self._evaluation_episodes = evaluation_episodes
        self._slots = (Slots(total=training_slots), Slots(total=evaluation_slots))

    def admitted(self, lease: int, arrival: Arrival, now: float) -> None:
        """An env server got slots; it builds its environments now."""
        with self._lock:
            before = self._left.pop(arrival.name, None)
            for other in list(self._left.values()) if before is None else ():
                if other.arrival.key in arrival.earlier:
                    before = self._left.pop(other.name)
            server = EnvServer(self._unique(arrival.name), arrival, now)
            if before is not None and (before.was_ready or before.failures):
                server.succeed(before)
            self._present[lease] = server
            if arrival.quarantined > (before.arrival.quarantined if before else 0):
                self._say_quarantine(server)

    def ready(self, lease: int, now: float) -> None:
        """It has built them, and steps."""
        with self._lock:
            server = self._present[lease]
            server.begin(now)
            before, shares = server.before, self._shares(server.arrival)
            if before is None:
                self._listener.say(
                    "server_joined",
                    f"env server {server.name} joins with {shares}",
                    server=server.name,
                    **server.sizes,
                )
                return
            is_same = before.name == server.name and before.sizes == server.sizes
            if before.has_failed and is_same:
                return  # the failure has said that it would be back
            place = "" if before.name == server.name else f" in the place of {before.name}"
            seconds = now - before.since
            self._listener.say(
                "server_returned",
                f"env server {server.name} returns{place} after {seconds:.1f} s with {shares}",
                server=server.name,
                **server.sizes,
                seconds=seconds,
            )

    def failed(self, lease: int, reason: str, now: float) -> None:
        """An environment of it has raised an exception; if many do, not each is said."""
        with self._lock:
            server = self._present[lease]
            server.failures, server.last_failure = server.failures + 1, reason
            server.has_said_why = server.has_failed = True
            self._failures += 1
            if not server.may_say_failure(now):
                return
            self._listener.say(
                "environment_failed",
                f"an environment of env server {server.name} failed (failure {server.failures}): "
                f"{reason}",
                server=server.name,
                failures=server.failures,
                reason=reason,
            )

    def turned_away(self, name: str, reason: str, number: int = 1) -> None:
        """The learner does not want an env server as it is; the same is said once."""
        with self._lock:
            self._num_refused += number
            if (name, reason) in self._refusals:
                return
            if len(self._refusals) >= _MOST_REFUSALS:
                self._refusals.clear()
            self._refusals.add((name, reason))
            text = f"env server {name} is refused: {reason}"
            self._listener.say("server_refused", text, server=name, reason=reason)

    def called_back(self, lease: int) -> None:
        """It shall return for more slots: no news of one that has not been ready."""
        with self._lock:
            self._present[lease].has_said_why |= not self._present[lease].was_ready

    def left(self, lease: int, reason: str, now: float) -> None:
        """Its lease has ended."""
        with self._lock:
            server = self._present.pop(lease)
            was_building = server.state == "building"
            server.leave(self._why_closed or reason, now)
            self._left[server.name] = server
            if len(self._left) > _MOST_LEFT:
                del self._left[next(iter(self._left))]
            if server.has_said_why:
                return
            number = server.arrival.environments
            when = "before it was ready" if was_building else f"with {environments(number)}"
            self._listener.say(
                "server_left",
                f"env server {server.name} leaves {when}: {reason}",
                server=server.name,
                environments=number,
                reason=reason,
            )

    def refused(self, lease: int, reason: str) -> None:
        """Its lease will end, for it cannot be used."""
        with self._lock:
            server = self._present[lease]
            server.has_said_why = True
            self.turned_away(server.name, reason)

    def closing(self, reason: str) -> None:
        """The learner ends, and sends everybody away: nothing of that is worth an event."""
        with self._lock:
            self._listener, self._why_closed = NOBODY, reason

    def look(self, turns: Mapping[int, Sequence[Turn]], now: float) -> None:
        """Takes whose turn it is in every group of every lease."""
        with self._lock:
            seconds = 0.0 if self._looked is None else now - self._looked
            self._looked = now
            counts = {is_training: Counter[str]() for is_training in (True, False)}
            for lease, server in self._present.items():
                # A lease may have begun since the turns were taken; one that has ended is not here.
                if server.state == "building" or lease not in turns:
                    continue
                server.look(turns[lease], now, seconds)
                self._note_hung(server, turns[lease], now)
                for number, turn in enumerate(turns[lease]):
                    count = counts[turn.is_training]
                    count["live"] += turn.environments
                    count["waiting"] += turn.environments * (number in server.waiting_seconds)
                    count["hung"] += turn.environments * (number in server.hung)
            training, evaluation = self._slots
            self._slots = (
                replace(training, **dict.fromkeys(_COUNTED, 0) | counts[True]),
                replace(evaluation, **dict.fromkeys(_COUNTED, 0) | counts[False]),
            )

    def found(self, now: float) -> EnvServers:
        """What was found at the last look."""
        with self._lock:
            unix_time = time.time() - now
            servers = (*self._present.values(), *reversed(self._left.values()))
            return EnvServers(
                tuple(server.status(unix_time) for server in servers),
                *self._slots,
                self._failures,
                sum(server.arrival.quarantined for server in self._present.values()),
                self._num_refused,
            )

    def _say_quarantine(self, server: EnvServer) -> None:
        number, reason = server.arrival.quarantined, server.arrival.quarantine
        self._listener.say(
            "environment_quarantined",
            f"env server {server.name} goes on without {environments(number)}: {reason}",
            server=server.name,
            quarantined=number,
            reason=reason,
        )

    def _note_hung(self, server: EnvServer, turns: Sequence[Turn], now: float) -> None:
        begun, ended = server.hang(self._step_deadline_seconds, now)
        if begun:
            seconds = max(server.waiting_seconds[number] for number in begun)
            self._listener.say(
                "server_hung",
                f"env server {server.name} hangs: {_groups(begun, turns)} sent no step for "
                f"{seconds:.0f} s (serving.step_deadline_seconds); its slots stay taken",
                server=server.name,
                groups=begun,
                environments=_size(begun, turns),
                seconds=seconds,
            )
        if ended:
            self._listener.say(
                "server_steps_again",
                f"env server {server.name} steps again: {_groups(ended, turns)}",
                server=server.name,
                groups=ended,
                environments=_size(ended, turns),
            )

    def _shares(self, arrival: Arrival) -> str:
        """How an env server's environments are shared out, what is filled by now, and once why."""
        training, evaluation = (slots.total for slots in self._slots)
        there = [server.arrival for server in self._present.values() if server.state != "building"]
        filled = sum(other.training for other in there)
        text = f"{environments(arrival.environments)}: {arrival.training} to train"
        text += f" ({filled} of {training} slots)"
        if arrival.evaluation:
            filled = sum(other.evaluation for other in there)
            text += f", {arrival.evaluation} to evaluate ({filled} of {evaluation})"
        if arrival.offered > arrival.environments:
            text += f"; {arrival.offered} were offered, and all slots are taken"
        if arrival.evaluation and not self._has_explained:
            self._has_explained = True
            text += (
                " (training slots fill first; an env server of two environments or more gives at "
                "least one to evaluation until evaluation_slots are filled)"
            )
        return text + (self._advice() if arrival.evaluation else "")

    def _advice(self) -> str:
        """What would make evaluation faster, if it is slow with those that are there; once."""
        filled = sum(server.arrival.evaluation for server in self._present.values())
        in_a_row = math.ceil(self._evaluation_episodes / filled)
        if in_a_row < _MANY_IN_A_ROW or filled >= self._slots[1].total or self._has_advised:
            return ""
        self._has_advised = True
        slots = f"{filled} slot{'s' * (filled > 1)}"
        return (
            f"; {self._evaluation_episodes:,} episodes to measure take {in_a_row:,} in a row on "
            f"{slots}: offer more environments"
        )

    def _unique(self, name: str) -> str:
        """The name, or one like it if somebody there has it: hosts and pids may repeat."""
        taken = {server.name for server in self._present.values()}
        unique, number = name, 2
        while unique in taken:
            unique, number = f"{name}#{number}", number + 1
        return unique


def _size(groups: Sequence[int], turns: Sequence[Turn]) -> int:
    return sum(turns[number].environments for number in groups)


def _groups(groups: Sequence[int], turns: Sequence[Turn]) -> str:
    numbers = ", ".join(map(str, groups))
    return f"group{'s' * (len(groups) > 1)} {numbers} ({environments(_size(groups, turns))})"
