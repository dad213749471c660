"""The registry of env servers: which are connected, what they do, and why others left."""

import math
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from learner.report.events import NO_SINK, EventSink
from learner.report.status import INTERVAL_SECONDS, EnvServerState, EnvServerStatus, Slots
from seedrl.timing import WARNING_SECONDS

# The first few failures of an env server are each reported, then at most one a minute.
_FIRST_FAILURES = 3
# Env servers that have left, and refusals that are not reported again.
_MOST_LEFT = 50
_MOST_REFUSALS = 1000
# Env servers that a sentence names.
_MOST_NAMES = 3


class EnvServers(NamedTuple):
    """The registry at one moment."""

    # Those that are connected, then those that have left, latest first.
    servers: tuple[EnvServerStatus, ...] = ()
    training: Slots = Slots(total=0)
    evaluation: Slots = Slots(total=0)
    failures: int = 0  # of environments, in all
    quarantined: int = 0  # environments that connected env servers have disabled
    refused: int = 0  # connections, in all


class Turn(NamedTuple):
    """A group at one moment."""

    environments: int
    is_training: bool
    sequence: int  # steps that have arrived
    is_owed: bool  # its env server has the actions, and has not sent the next step
    owed_since: float = 0.0  # when it got them, or was ready to take its first step


@dataclass
class _Server:
    """An env server, and how its status came about."""

    status: EnvServerStatus  # its times are of the registry's clock
    offered: int  # environments that it had; it may have got fewer
    left_at: float | None = None  # when it left before; None if it is new
    was_ready: bool = False  # its environments were built
    is_explained: bool = False  # an event has reported why it leaves
    next_failure: float = -math.inf
    # That have arrived: of all environments, and of those that train.
    num_steps: tuple[int, int] = (0, 0)

    def be(self, state: EnvServerState, now: float, **changes: Any) -> None:
        since = now if self.status.state != state else self.status.since_seconds
        self.status = replace(self.status, state=state, since_seconds=since, **changes)


class EnvServerRegistry:
    """Knows every env server of a run, and reports when one joins, fails, hangs or leaves."""

    # The hub calls it under its own lock when an env server comes or leaves, and without it once a
    # second with `look`; never for a step. So `look` may run while another lease begins or ends.
    # Leases go by their number; times are of any clock.

    def __init__(
        self,
        listener: EventSink = NO_SINK,
        *,
        training_slots: int = 0,
        evaluation_slots: int = 0,
        step_deadline_seconds: float = 0.0,
    ):
        """`listener` takes the events; the other arguments are those of `serving`."""
        # Guards all that follows, for less than a millisecond. Taken after the hub's, never before.
        # Reentrant: `left` reports by `turned_away`.
        self._lock = threading.RLock()
        self._listener = listener
        self._step_deadline_seconds = step_deadline_seconds or math.inf
        self._present: dict[int, _Server] = {}
        self._left: dict[str, _Server] = {}  # by name; the last one left last
        self._refusals: set[str] = set()  # reasons that were reported
        self._looked: float | None = None
        self._failures = self._num_refused = 0
        self._slots = (Slots(total=training_slots), Slots(total=evaluation_slots))

    def admitted(
        self, lease: int, status: EnvServerStatus, *, offered: int, why_disabled: str = ""
    ) -> None:
        """An env server got slots; it builds its environments now."""
        # `offered`: environments that it has; it may have got fewer. `why_disabled`: why the newest
        # of the disabled ones is.
        with self._lock:
            server = self._present[lease] = _Server(status, offered)
            # A process that reconnects; one that was started again has another name.
            before = self._left.pop(status.name, None)
            known = 0
            if before is not None:
                known = before.status.quarantined
                server.left_at = before.status.since_seconds
                server.next_failure = before.next_failure
                failures, failure = before.status.failures, before.status.last_failure
                server.status = replace(status, failures=failures, last_failure=failure)
            if status.quarantined > known:
                disabled = f"{_environments(status.quarantined)} disabled"
                self._report_failure(server, disabled, why_disabled)

    def ready(self, lease: int, now: float) -> None:
        """It has built them, and steps."""
        with self._lock:
            server = self._present[lease]
            server.was_ready = True
            server.be("live", now)
            status = server.status
            away = None if server.left_at is None else now - server.left_at
            how = "joins" if away is None else f"returns after {away:.1f} s"
            self._listener.report(
                "server_joined",
                f"env server {status.name} {how} with {self._shares(server)}",
                server=status.name,
                training=status.training_slots,
                evaluation=status.evaluation_slots,
                away_seconds=away,
            )

    def failed(self, lease: int, reason: str, now: float, *, leaves: bool = True) -> None:
        """One of its environments failed; `leaves`: its connection ends because of that."""
        with self._lock:
            self._failures += 1
            server = self._present[lease]
            number = server.status.failures + 1
            server.status = replace(server.status, failures=number, last_failure=reason)
            # The end of its connection would say the same again.
            server.is_explained |= leaves
            if number <= _FIRST_FAILURES or now >= server.next_failure:
                server.next_failure = now + WARNING_SECONDS
                self._report_failure(server, f"environment failed (failure {number})", reason)

    def turned_away(self, name: str, reason: str) -> None:
        """The learner refuses an env server; one reason is reported once, whomever it meets."""
        with self._lock:
            self._num_refused += 1
            if reason in self._refusals:
                return
            # Reasons hold words of strangers, who could make up new ones.
            if len(self._refusals) >= _MOST_REFUSALS:
                self._refusals.clear()
            self._refusals.add(reason)
            text = f"env server {name} refused: {reason}"
            self._listener.report("server_refused", text, server=name, reason=reason)

    def left(self, lease: int, reason: str, now: float, *, is_refused: bool = False) -> None:
        """Its lease has ended; `is_refused`: because it cannot be used."""
        with self._lock:
            server = self._present.pop(lease)
            rates = {"steps_per_second": 0.0, "training_steps_per_second": 0.0}
            idle = {**rates, "waiting_seconds": 0.0, "hung_groups": ()}
            server.be("left", now, left_because=reason, **idle)
            name = server.status.name
            self._left[name] = server
            if len(self._left) > _MOST_LEFT:
                del self._left[next(iter(self._left))]
            if is_refused:
                self.turned_away(name, reason)
            elif not server.is_explained:
                when = "" if server.was_ready else " before it was ready"
                text = f"env server {name} left{when}: {reason}"
                self._listener.report("server_left", text, server=name, reason=reason)

    def closing(self) -> None:
        """The learner ends all connections: none of that is worth an event."""
        with self._lock:
            self._listener = NO_SINK

    def look(self, turns: Mapping[int, Sequence[Turn]], now: float) -> None:
        """Takes the turn of every group of every lease."""
        with self._lock:
            seconds = 0.0 if self._looked is None else now - self._looked
            self._looked = now
            counts = {True: Counter[str](), False: Counter[str]()}
            for lease, server in self._present.items():
                # A lease may have begun since the turns were taken; one that has ended is not here.
                if not server.was_ready or lease not in turns:
                    continue
                groups = turns[lease]
                steps = {True: 0, False: 0}
                for turn in groups:
                    steps[turn.is_training] += turn.sequence * turn.environments
                new_steps = sum(steps.values()), steps[True]
                before, server.num_steps = server.num_steps, new_steps
                rates = [
                    (new - old) / seconds if seconds else 0.0
                    for new, old in zip(server.num_steps, before, strict=True)
                ]
                # A step that is owed for less is on its way; beyond that the learner waits.
                waits = {
                    number: now - turn.owed_since
                    for number, turn in enumerate(groups)
                    if turn.is_owed and now - turn.owed_since >= INTERVAL_SECONDS
                }
                hung = [each for each in waits if waits[each] > self._step_deadline_seconds]
                self._note(server, now, rates, max(waits.values(), default=0.0), hung)
                for number, turn in enumerate(groups):
                    count = counts[turn.is_training]
                    count["live"] += turn.environments
                    count["waiting"] += turn.environments * (number in waits)
                    count["hung"] += turn.environments * (number in hung)
            training, evaluation = self._slots
            self._slots = (
                Slots(total=training.total, **counts[True]),
                Slots(total=evaluation.total, **counts[False]),
            )

    def found(self, now: float) -> EnvServers:
        """The registry as of the last `look`."""
        with self._lock:
            unix_time = time.time() - now
            servers = (*self._present.values(), *reversed(self._left.values()))
            return EnvServers(
                tuple(
                    replace(each.status, since_seconds=unix_time + each.status.since_seconds)
                    for each in servers
                ),
                *self._slots,
                self._failures,
                sum(server.status.quarantined for server in self._present.values()),
                self._num_refused,
            )

    def _report_failure(self, server: _Server, what: str, reason: str) -> None:
        status = server.status
        self._listener.report(
            "environment_failed",
            f"env server {status.name}: {what}: {reason}",
            server=status.name,
            failures=status.failures,
            disabled=status.quarantined,
            reason=reason,
        )

    def _note(
        self, server: _Server, now: float, rates: list[float], seconds: float, hung: list[int]
    ) -> None:
        """Keeps how it steps, and reports when its first group hangs, and when none does."""
        name, was_hung = server.status.name, server.status.state == "hung"
        server.be(
            "hung" if hung else "live",
            now,
            steps_per_second=rates[0],
            training_steps_per_second=rates[1],
            waiting_seconds=seconds,
            hung_groups=tuple(hung),
        )
        if bool(hung) == was_hung:
            return
        text = "steps again"
        if hung:
            text = (
                f"hangs: group {', '.join(map(str, hung))} sent no step for {seconds:.0f} s "
                "(serving.step_deadline_seconds); its log shows where"
            )
        self._listener.report(
            "waiting",
            f"env server {name} {text}",
            is_problem=bool(hung),
            server=name,
            groups=hung,
            seconds=seconds,
            waiting_for=name if hung else "",
        )

    def _shares(self, server: _Server) -> str:
        """The environments of an env server by role, and how many slots are filled by now."""
        ready = [each.status for each in self._present.values() if each.was_ready]
        training, evaluation = self._slots
        status = server.status
        text = (
            f"{_environments(status.environments)}, {status.training_slots} to train and "
            f"{status.evaluation_slots} to evaluate (slots filled: "
            f"{sum(each.training_slots for each in ready)} of {training.total} and "
            f"{sum(each.evaluation_slots for each in ready)} of {evaluation.total})"
        )
        if server.offered > status.environments:
            text += f"; {server.offered} were offered, and there is no slot for the others"
        return text


def waited_for(found: EnvServers, *, needs_all: bool = False) -> str:
    """The env servers that the learner waits for, in words; empty if there are none.

    `needs_all`: a batch has all training slots, but those of disabled environments.
    """
    present = [server for server in found.servers if server.state != "left"]
    if not present:
        return "no env server is connected"
    ready = [server for server in present if server.state != "building"]
    if not ready:
        return f"environments are being built by {_names(present)}"
    training = [server for server in ready if server.training_slots]
    if not training:
        return "no connected env server has training slots"
    slots, disabled = found.training, found.quarantined
    if needs_all and slots.live < (needed := slots.total - disabled):
        text = f"learning.schedule needs {needed} training slots, {slots.live} are filled"
        return text + (f"; {_environments(disabled)} disabled after failures" if disabled else "")
    silent = [server for server in training if server.waiting_seconds]
    if len(silent) < len(training):
        return ""
    return f"no step from {_names(silent)}"


def _names(servers: Sequence[EnvServerStatus]) -> str:
    shown = ", ".join(server.name for server in servers[:_MOST_NAMES])
    more = len(servers) - _MOST_NAMES
    return f"{shown} and {more} more" if more > 0 else shown


def _environments(number: int) -> str:
    return f"{number} environment{'s' * (number != 1)}"
