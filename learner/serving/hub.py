"""The hub: the serving core behind a lock, and the wait for something to do."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import Any

import grpc
import numpy as np

from learner.report.env_servers import EnvServerRegistry, EnvServers
from learner.serving.batching import Pending
from learner.serving.core import Batch, ProtocolError, Serving, first_row
from learner.serving.leases import Group, Lease, Role
from learner.serving.peer import (
    Admission,
    EndError,
    HubConnection,
    Offer,
    refusal,
    status_of,
    turns_of,
    unavailable,
)
from seedrl.config import EnvironmentConfig
from seedrl.specs import EnvSpec
from seedrl.wire.payload import pack_actions

# Slots stay idle that long before an env server is sent away so that it can have them: one that was
# killed is usually back sooner, and to lose a connection cuts all streams of it.
IDLE_SECONDS = 10.0


class Hub:
    """Where connections and acting meet; its methods may be called from any thread.

    It alone takes the core's lock. It knows no transport and one clock, so it can be simulated.

    Attributes:
      environment: what env servers have to build.
      clock: seconds, monotonic.
    """

    def __init__(
        self,
        serving: Serving,
        environment: EnvironmentConfig,
        *,
        spec: EnvSpec | None = None,
        clock: Callable[[], float] = time.monotonic,
        registry: EnvServerRegistry | None = None,
        idle_seconds: float = IDLE_SECONDS,
    ):
        """`spec`: a checkpoint's; without one, the first env server that is ready decides."""
        self.environment = environment
        self.clock = clock
        # Guards all that follows; notified at every change.
        self._changed = threading.Condition(lock := threading.RLock())
        # For the acting thread of each inference device: what arrives for one wakes no other.
        self._due = [threading.Condition(lock) for _ in range(serving.slots.num_devices)]
        self._woken: set[int] = set()
        self._serving = serving
        self._registry = registry or EnvServerRegistry()
        self._spec = spec
        self._has_spec = False  # whether an env server has built that
        self._is_open = True
        self._idle_seconds = idle_seconds
        self._idle_since: float | None = None  # since when `rebalance` has something to do

    def admit(self, connection: HubConnection, offer: Offer) -> Admission:
        """Leases slots to an env server that has said what it offers.

        Raises what the env server has to hear: EndError if the learner stops, ProtocolError for a
        report that cannot be true, and what `first_row` and `Serving.lease` raise.
        """
        with self._changed:
            if not self._is_open:
                raise unavailable("the learner is stopping")
            self._end_superseded(offer.earlier)
            if disputed := self._serving.report(offer.sent):
                raise ProtocolError(f"expected a true report of sent steps; {disputed[0]}")
            lease = self._serving.lease(
                offer.num_envs,
                offer.num_groups,
                offer.peer,
                resumed_at=first_row(self._serving) if offer.plays_recording else None,
                holder=connection,
            )
            self._registry.admitted(
                lease.number,
                status_of(lease, offer, self.clock()),
                offered=offer.num_envs,
                why_disabled=offer.quarantine,
            )
            return Admission(lease, [self._serving.seeds(group) for group in lease.groups])

    def ready(self, lease: Lease, spec: EnvSpec) -> None:
        """Takes an env server whose environments are built.

        The first one's fixes the run's spec. EndError: they are not like the run's environments.
        """
        with self._changed:
            if self._spec is not None and (difference := self._spec.difference(spec)):
                raise self._refusal("; ".join(difference))
            self._spec, self._has_spec = spec, True
            if not lease.ended:
                self._serving.ready(lease)
                for group in lease.groups:
                    group.answered_seconds = self.clock()  # it owes the first step
                self._registry.ready(lease.number, self.clock())
            self._notify_all()

    def _refusal(self, difference: str) -> EndError:
        owner = "the one that the learner trains on" if self._has_spec else "the checkpoint's"
        advice = "" if self._has_spec else "; restore the config or start a new workdir"
        return refusal(f"this environment differs from {owner}: {difference}{advice}")

    def fail(self, lease: Lease, reason: str) -> EndError:
        """Notes that an environment has failed; how its connection ends."""
        with self._changed:
            if not lease.ended:
                self._registry.failed(lease.number, reason, self.clock())
        return EndError(grpc.StatusCode.UNAVAILABLE, f"an environment failed: {reason}")

    def deliver(self, steps: Sequence[Pending]) -> None:
        """Accepts a step of each of some groups. Raises ProtocolError; see `Serving.step`."""
        with self._changed:
            self._changed.notify_all()
            for lane in [lane for step in steps if (lane := self._serving.step(step)).is_news]:
                self._due[lane.device].notify_all()
            for lease, slot in self._serving.take_restarted():
                reason = f"that of slot {slot} was restarted in an episode (its log says why)"
                self._registry.failed(lease.number, reason, self.clock(), leaves=False)

    def reject(self, group: Group, sequence: int) -> None:
        """A step of `group` has arrived that cannot be read."""
        with self._changed:
            self._serving.reject(group, sequence)

    def leave(self, lease: Lease, error: EndError | None) -> None:
        """Ends a lease, which cuts its streams, and its connection, unless it has ended."""
        with self._changed:
            if not lease.ended:
                self._end(lease, error)

    def turn_away(self, peer: str, error: EndError, number: int = 1) -> None:
        """Notes why the connection of an env server without a lease ends, or a `number` of them."""
        with self._changed:
            self._registry.turned_away(peer, error.details, number)

    def env_servers(self) -> EnvServers:
        """Who is there, and who is waited for; to be called once a second."""
        with self._changed:
            now, registry = self.clock(), self._registry
            turns = {key: turns_of(lease) for key, lease in self._serving.slots.leases.items()}
        registry.look(turns, now)  # takes longer, and has a lock of its own
        return registry.found(now)

    def rebalance(self) -> None:
        """Ends a connection whose env server would fill idle slots if it came back.

        To be called several times a second. One connection at a time, after slots were idle for
        `idle_seconds`; see `SlotTable.returning`.
        """
        with self._changed:
            lease = self._serving.returning() if self._is_open else None
            if lease is None:
                self._idle_since = None
            elif self._idle_since is None:
                self._idle_since = self.clock()
            elif self.clock() - self._idle_since >= self._idle_seconds:
                self._idle_since = None
                self._end(lease, unavailable("slots are rebalanced"))

    def wake(self) -> None:
        """Makes `next_batch` return, this or the next call, to look again at what is allowed."""
        with self._changed:
            self._woken.update(range(len(self._due)))
            self._notify_all()

    def next_batch(self, roles: Collection[Role], timeout: float, device: int = 0) -> Batch | None:
        """The next due batch of these roles and device; None if none was in time, or on `wake`."""
        deadline = self.clock() + timeout
        with self._changed:
            lanes = self._serving.lanes_of(device, roles)
            while True:
                now = self.clock()
                waits = [(lane.seconds_until_due(now), lane) for lane in lanes]
                if due := [lane for wait, lane in waits if wait == 0.0]:
                    # First come, first served: no lane starves another.
                    return self._serving.take(min(due, key=lambda lane: lane.oldest_arrival))
                if device in self._woken or now >= deadline:
                    self._woken.discard(device)
                    return None
                soonest = min([deadline, *(now + wait for wait, _ in waits if wait is not None)])
                self._due[device].wait(soonest - now)

    def answer(self, batch: Batch, actions: np.ndarray) -> None:
        """Sends `actions [B, ...]` to whom they belong, and releases the batch's slots."""
        with self._changed:
            for group in (groups := self._serving.answered(batch)):
                group.answered_seconds = self.clock()  # from this moment it owes a step
            holders = {id(group): group.lease.holder for group in groups}
        answers = defaultdict[HubConnection, list[bytes]](list)
        for (group, sequence, *_), rows in zip(batch.pending, batch.rows, strict=True):
            if (holder := holders.get(id(group))) is not None:
                answers[holder].append(pack_actions(group.number, sequence, actions[rows]))
        for holder, payloads in answers.items():
            holder.send_actions(payloads)

    def take_ended(self, device: int = 0) -> list[int]:
        """Streams of that inference device that were cut since the last call."""
        with self._changed:
            return self._serving.slots.take_cut(device)

    def wait_until(self, condition: Callable[[], object], timeout: float) -> bool:
        """Waits until `condition`, asked again at every change, holds; whether it does."""
        with self._changed:
            return bool(self._changed.wait_for(condition, timeout))

    def wait_for_spec(self, timeout: float, given: EnvSpec | None = None) -> EnvSpec | None:
        """A first env server's spec, or else one that is `given`; None if none arrived in time."""
        with self._changed:
            self._spec = self._spec or given
            self._changed.wait_for(lambda: self._spec is not None, timeout)
            return self._spec

    def wait_for_env_server(self, timeout: float) -> bool:
        """Waits until an env server has built the run's environment; whether one has in time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._has_spec, timeout)

    @property
    def spec(self) -> EnvSpec | None:
        """What environments look like: given, or taken from the first env server that is ready."""
        with self._changed:
            return self._spec

    @property
    def num_batches(self) -> int:
        """Batches taken so far, since the start of the run in lock step."""
        with self._changed:
            return self._serving.num_batches

    @property
    def num_free(self) -> int:
        """Slots that can be leased now."""
        with self._changed:
            return self._serving.slots.num_free

    def connections(self) -> list[HubConnection]:
        """The connections of all live leases."""
        with self._changed:
            return [lease.holder for lease in self._serving.slots.leases.values()]

    def live_slots(self, role: Role, device: int | None = None) -> np.ndarray:
        """Slots of this role whose stream is open, `[L] int32`, sorted; of one device, or all."""
        with self._changed:
            return self._serving.live_slots(role, device)

    def ledger(self) -> dict[str, int]:
        """The accounts of the serving core, all at one moment; see `learner.serving.ledger`."""
        with self._changed:
            return self._serving.accounts()

    def streams_state(self) -> dict[str, Any]:
        """Where every stream of experience is; see `Serving.state`."""
        with self._changed:
            return self._serving.state()

    def close(self, error: EndError | None) -> None:
        """Admits nobody any more, and ends every connection with `error`, or quietly."""
        with self._changed:
            self._is_open = False
            self._registry.closing()
            for lease in self._serving.slots.leases.values():
                lease.holder.end(error)
            self._notify_all()

    # Below, the caller holds the lock: all of them are methods of this class.

    def _notify_all(self) -> None:
        """Something has changed that may concern anybody."""
        for condition in (self._changed, *self._due):
            condition.notify_all()

    def _end(self, lease: Lease, error: EndError | None, why: str = "its connection ended") -> None:
        """Ends a lease and its connection in one moment."""
        # Else the env server's next step, which is fenced, could be what the connection ends with.
        self._serving.end(lease)
        why, is_refused = (error.details, error.is_refusal) if error else (why, False)
        self._registry.left(lease.number, why, self.clock(), is_refused=is_refused)
        lease.holder.end(error)
        lease.holder = None  # the lease is kept until it is reported, its connection is not
        self._notify_all()

    def _end_superseded(self, keys: Collection[int]) -> None:
        """Ends leases that are over for the env server: it returns for their slots."""
        for lease in [each for each in self._serving.slots.leases.values() if each.key in keys]:
            self._end(lease, None, "it is back on another connection")
