"""The hub: the serving core behind a lock, and the wait for something to do."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import Any

import grpc
import numpy as np

from learner.reporting.env_servers import EnvServerRegistry, EnvServers
from learner.serving.batcher import Pending
from learner.serving.core import Batch, ProtocolError, Serving, first_row
from learner.serving.dealing.returning import Patience, could_grow
from learner.serving.handshake.agreement import Agreement
from learner.serving.leases import Group, Lease
from learner.serving.peer import (
    Admission,
    EndError,
    HubConnection,
    Offer,
    arrival_of,
    turns_of,
    unavailable,
)
from learner.serving.slot_deal import Role
from seedrl.config import EnvironmentConfig
from seedrl.specs import EnvSpec
from seedrl.wire.payload import pack_actions


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
        attendance: EnvServerRegistry | None = None,
        tries_spec: bool = False,
    ):
        """`spec`: a checkpoint's, else the first step's (`tries_spec`: until `settle_spec`)."""
        self.environment = environment
        self.clock = clock
        # Guards all that follows; notified at every change.
        self._changed = threading.Condition(lock := threading.RLock())
        # For the acting thread of each inference device: what arrives for one wakes no other.
        self._due = [threading.Condition(lock) for _ in range(serving.slots.num_devices)]
        self._woken: set[int] = set()
        self._serving = serving
        self._attendance = attendance or EnvServerRegistry()
        self._agreement = Agreement(spec, is_tried=tries_spec)
        self._is_open, self._patience = True, Patience()

    def admit(self, connection: HubConnection, offer: Offer) -> Admission:
        """Leases slots to an env server that has said what it offers.

        Raises what the env server has to hear: EndError if the learner stops, ProtocolError for a
        report that cannot be true, and what `first_row` and `Serving.lease` raise.
        """
        with self._changed:
            if not self._is_open:
                raise unavailable("the learner is stopping")
            try:
                self._end_superseded(offer.earlier)
                is_known = self._serving.reconciliation.has_been_ready(offer.peer, offer.earlier)
                if disputed := self._serving.report(offer.sent):
                    raise ProtocolError(f"expected a true report of sent steps; {disputed[0]}")
                row = first_row(self._serving) if offer.plays_recording else None
                wanted = (offer.num_envs, offer.num_groups, offer.peer)
                lease = self._serving.lease(
                    *wanted, may_have_all=is_known, resumed_at=row, holder=connection
                )
                self._attendance.admitted(lease.number, arrival_of(lease, offer), self.clock())
            finally:
                self._make_room()
            return Admission(lease, [self._serving.seeds(group) for group in lease.groups])

    def take_spec(self, lease: Lease, spec: EnvSpec, *, has_stepped: bool) -> None:
        """Takes what an env server has built. EndError: it is not what the first to step has."""
        with self._changed:
            # Twice: two env servers may have got ready before either has sent a step.
            self._agreement.check(spec)
            if not has_stepped and not lease.ended:
                self._serving.ready(lease)
                self._make_room()
                if not lease.ended:
                    self._attendance.ready(lease.number, self.clock())
            if self._agreement.take(spec, lease, has_stepped=has_stepped):
                self._notify_all()

    def settle_spec(self, reason: str = "") -> bool:
        """The run uses what `wait_for_spec` gave or, for a `reason`, wants another; if it can."""
        with self._changed:
            leases, error = self._agreement.settle(reason)
            for lease in [each for each in leases if not each.ended]:
                self._end(lease, error)
            return error is not None

    def fail(self, lease: Lease, reason: str) -> EndError:
        """Notes that an environment has failed; how its connection ends."""
        with self._changed:
            if not lease.ended:
                self._attendance.failed(lease.number, reason, self.clock())
        return EndError(grpc.StatusCode.UNAVAILABLE, f"an environment failed: {reason}")

    def deliver(self, steps: Sequence[Pending]) -> None:
        """Accepts a step of each of some groups. Raises ProtocolError; see `Serving.step`."""
        with self._changed:
            self._changed.notify_all()
            for lane in [lane for step in steps if (lane := self._serving.step(step)).is_news]:
                self._due[lane.device].notify_all()
            for lease, slot in self._serving.take_restarted():
                reason = f"that of slot {slot} was restarted in an episode (its log says why)"
                self._attendance.failed(lease.number, reason, self.clock(), leaves=False)

    def reject(self, group: Group, sequence: int) -> None:
        """A step of `group` has arrived that cannot be read."""
        with self._changed:
            self._serving.reject(group, sequence)

    def leave(self, lease: Lease, error: EndError | None) -> None:
        """Ends a lease, which cuts its streams, and its connection, unless it has ended."""
        with self._changed:
            if not lease.ended:
                self._end(lease, error)
                self._make_room()

    def turn_away(self, peer: str, error: EndError, number: int = 1) -> None:
        """Notes why the connection of an env server without a lease ends, or a `number` of them."""
        with self._changed:
            self._attendance.turned_away(peer, error.details, number)

    def env_servers(self) -> EnvServers:
        """Who is there, and who is waited for; to be called once a second."""
        with self._changed:
            now, attendance = self.clock(), self._attendance
            turns = {key: turns_of(lease) for key, lease in self._serving.slots.leases.items()}
        attendance.look(turns, now)  # takes longer, and has a lock of its own
        return attendance.found(now)

    def deal_again(self) -> None:
        """Calls back an env server for what nobody does, but not in lock step; see `Patience`."""
        with self._changed:
            may_cut = self._is_open and not self._serving.rule.is_complete
            if may_cut and (lease := self._patience.look(self._serving.slots, self.clock())):
                self._call_back(lease, "slots are dealt again")

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
            if len(holders) < len(batch.pending):
                self._make_room()  # in the slots of leases that have ended meanwhile
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
            self._agreement.spec = self._agreement.spec or given
            self._changed.wait_for(lambda: self._agreement.spec is not None, timeout)
            return self._agreement.spec

    def wait_for_agreement(self, timeout: float) -> bool:
        """Waits for an env server with an environment of the spec; whether one arrived in time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._agreement.is_agreed, timeout)

    @property
    def spec(self) -> EnvSpec | None:
        """What environments look like: given, or taken from the first that is stepped."""
        with self._changed:
            return self._agreement.spec

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
            self._attendance.closing("training is over" if error is None else error.details)
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
        if error is not None and error.is_refusal:
            self._attendance.refused(lease.number, error.details)
        self._attendance.left(lease.number, error.details if error else why, self.clock())
        lease.holder.end(error)
        lease.holder = None  # the lease is kept until it is reported, its connection is not
        self._notify_all()

    def _end_superseded(self, keys: Collection[int]) -> None:
        """Ends leases that are over for the env server: it returns for their slots."""
        for lease in [each for each in self._serving.slots.leases.values() if each.key in keys]:
            self._end(lease, None, "it is back on another connection")

    def _make_room(self) -> None:
        """Calls back who asked for more slots than it has, as far as some are free."""
        while self._is_open and (lease := could_grow(self._serving.slots)) is not None:
            self._call_back(lease, "more slots are free")

    def _call_back(self, lease: Lease, why: str) -> None:
        self._attendance.called_back(lease.number)
        self._end(lease, unavailable(why))
