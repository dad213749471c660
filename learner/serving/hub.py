"""The hub: the serving core behind a lock, and the wait for something to do."""

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

import grpc
import numpy as np

from learner.report.env_servers import EnvServerRegistry, EnvServers, Turn
from learner.report.status import EnvServerStatus
from learner.serving.batching import Pending
from learner.serving.core import Batch, Serving
from learner.serving.leases import Group, Lease, NoFreeSlotError, Role
from seedrl.config import EnvironmentConfig
from seedrl.observations import spec_difference
from seedrl.specs import EnvSpec
from seedrl.wire.contract import LONGEST_FROM_LEARNER, printable
from seedrl.wire.learner_payload import pack_actions, pack_reset
from seedrl.wire.seedrl_pb2 import Hello

# Slots stay idle that long before an env server is sent away so that it can have them: one that was
# killed is usually back sooner, and to lose a connection cuts all streams of it.
IDLE_SECONDS = 10.0
# Numbers in Hello are its sender's word, and are added to those of others.
_MOST_QUARANTINED = 2**16
_LONGEST_QUARANTINE = 400


class EndError(Exception):
    """Ends one connection with a status that its env server understands; the text is one line."""

    def __init__(self, code: grpc.StatusCode, details: str, *, is_reported: bool = False):
        """`is_reported`: the learner's user reads of it elsewhere, or need not."""
        super().__init__(details)
        self.code = code
        self.details = details
        self.is_reported = is_reported

    @property
    def is_refusal(self) -> bool:
        """True if the env server will not return."""
        refusals = (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.INVALID_ARGUMENT)
        return self.code in refusals


def unavailable(why: str) -> EndError:
    """Ends a connection whose env server shall return; of that the user reads elsewhere."""
    return EndError(grpc.StatusCode.UNAVAILABLE, why, is_reported=True)


def refusal(why: str) -> EndError:
    """Ends a connection whose env server shall not return; printed there as one line."""
    return EndError(grpc.StatusCode.FAILED_PRECONDITION, printable(why, LONGEST_FROM_LEARNER))


class HubConnection(Protocol):
    """What the hub knows of an env server's connection."""

    # Called by the acting thread, which must not be held up: it does not wait for the network.
    def send_actions(self, payloads: Sequence[bytes], /) -> None: ...

    # Ends with that status, or quietly; the first end counts. Called under the hub's lock, so it
    # neither waits nor calls the hub.
    def end(self, error: EndError | None, /) -> None: ...


class Hub:
    """Where connections and acting meet: a monitor over the core, called from any thread.

    Threads that receive call `deliver`, each acting thread `next_batch` and `answer`. It knows no
    transport and one clock, so it can be simulated.
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
        self.environment = environment  # that env servers have to build
        self.clock = clock
        # One lock, which guards all that follows. `_changed` is notified at every change, for the
        # main thread; `_due` has a condition for the acting thread of each inference device, so
        # that what arrives for one wakes no other.
        self._changed = threading.Condition(lock := threading.RLock())
        self._due = [threading.Condition(lock) for _ in range(serving.slots.num_devices)]
        self._woken: set[int] = set()  # devices that `wake` concerns and that have not looked yet
        self._serving = serving
        self._registry = registry or EnvServerRegistry()
        self._spec = spec
        self._has_spec = False  # True once an env server has built that
        self._is_open = True
        self._idle_seconds = idle_seconds
        self._idle_since: float | None = None  # since when `rebalance` has something to do

    def admit(self, connection: HubConnection, peer: str, hello: Hello) -> Lease:
        """Leases slots to an env server for what it offers; each group has its seeds.

        Raises EndError if the learner stops, NoFreeSlotError.
        """
        with self._changed:
            if not self._is_open:
                raise unavailable("the learner is stopping")
            # Leases that it reports are over for it, though this side may not have noticed (a lost
            # network sends no end): it gets the same slots again.
            self._end_superseded({sent.lease for sent in hello.sent})
            quarantined = min(hello.num_quarantined, _MOST_QUARANTINED)
            try:
                lease = self._serving.lease(
                    hello.num_envs, hello.num_groups, peer, holder=connection
                )
            except NoFreeSlotError as error:
                # One that is wrongly set up need not wait for a slot to hear of it.
                own = (self.environment.id, *self.environment.wrappers)
                names = [name for name in own if ":" in name]
                needs = f"; this run needs --allow-env {' '.join(names)}" if names else ""
                raise NoFreeSlotError(f"{error}{needs}") from error
            lease.num_disabled, lease.minor = quarantined, hello.minor
            self._registry.admitted(
                lease.number,
                _status_of(lease, quarantined, self.clock()),
                offered=hello.num_envs,
                why_disabled=printable(hello.quarantine, _LONGEST_QUARANTINE),
            )
            return lease

    def ready(self, lease: Lease, spec: EnvSpec) -> None:
        """Takes an env server whose environments are built; the first one fixes the run's spec.

        Raises EndError if they are not like the run's environments.
        """
        with self._changed:
            if self._spec is not None and (difference := spec_difference(self._spec, spec)):
                raise self._refusal("; ".join(difference))
            # The first one stays: a later one may declare fewer bounds.
            self._spec, self._has_spec = self._spec or spec, True
            if not lease.ended:
                self._serving.ready(lease)
                for group in lease.groups:
                    group.answered_seconds = self.clock()  # it owes the first step
                self._registry.ready(lease.number, self.clock())
            self._notify_all()

    def _refusal(self, difference: str) -> EndError:
        owner = "the one that the learner trains on" if self._has_spec else "the checkpoint's"
        # No --init-from: it takes no parameters of an environment of other spaces.
        advice = "" if self._has_spec else "; restore the config, or choose a new --workdir"
        return refusal(f"this environment differs from {owner}: {difference}{advice}")

    def fail(self, lease: Lease, reason: str) -> EndError:
        """Notes that an environment has failed; returns how its connection ends."""
        with self._changed:
            if not lease.ended:
                self._serving.fail(lease)
                self._registry.failed(lease.number, reason, self.clock())
        return EndError(grpc.StatusCode.UNAVAILABLE, f"an environment failed: {reason}")

    def deliver(self, steps: Sequence[Pending]) -> None:
        """Accepts a step of each of some groups. Raises WireError; see `Serving.step`."""
        with self._changed:
            self._changed.notify_all()
            for step in steps:
                queue, restarted = self._serving.step(step)
                # Acting wakes for the step that starts its wait, and for the one that ends it.
                if queue.is_news:
                    self._due[queue.device].notify_all()
                # At once: a later step of this message may end the lease.
                for slot in restarted:
                    reason = (
                        f"slot {slot} was rebuilt within an episode; the env server's log has the "
                        "reason (logs/ in the run's directory, or its terminal)"
                    )
                    self._registry.failed(
                        step.group.lease.number, reason, self.clock(), leaves=False
                    )

    def reject(self, group: Group) -> None:
        """Counts a step of `group` that has arrived and cannot be read."""
        with self._changed:
            self._serving.reject(group)

    def leave(self, lease: Lease, error: EndError | None) -> None:
        """Ends a lease, which cuts its streams, and its connection, unless it has ended."""
        with self._changed:
            if not lease.ended:
                self._end(lease, error)

    def turn_away(self, peer: str, error: EndError) -> None:
        """Notes why the connection of an env server without a lease ends."""
        self._registry.turned_away(peer, error.details)  # which has a lock of its own

    def env_servers(self) -> EnvServers:
        """Env servers, and for which of them acting waits; to be called once a second."""
        with self._changed:
            now, registry = self.clock(), self._registry
            turns = {key: _turns_of(lease) for key, lease in self._serving.slots.leases.items()}
        # The turns are values: the lock is held only while they are taken.
        registry.look(turns, now)  # takes longer, and has a lock of its own
        return registry.found(now)

    def rebalance(self) -> None:
        """Ends a connection whose env server would fill idle slots if it came back.

        To be called several times a second. One at a time, after `idle_seconds`.
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

    def set_batch_deadline(self, seconds: float) -> None:
        """Changes `serving.batch_deadline_seconds`; a batch that waits for it looks again."""
        with self._changed:
            self._serving.set_deadline(seconds)
            self._notify_all()

    @property
    def batch_deadline_seconds(self) -> float:
        """The longest wait of a training step for others."""
        return self._serving.rule.deadline_seconds  # one look at a value

    def wake(self) -> None:
        """Makes `next_batch` return, this or the next call, to look again at what is allowed."""
        with self._changed:
            self._woken.update(range(len(self._due)))
            self._notify_all()

    def next_batch(self, roles: Collection[Role], timeout: float, device: int = 0) -> Batch | None:
        """The next due batch of these roles and device; None if none was in time, or on `wake`."""
        deadline = self.clock() + timeout
        with self._changed:
            queues = self._serving.queues_of(device, roles)
            while True:
                now = self.clock()
                waits = [(queue.seconds_until_due(now), queue) for queue in queues]
                if due := [queue for wait, queue in waits if wait == 0.0]:
                    # First come, first served: no queue starves another.
                    return self._serving.take(min(due, key=lambda queue: queue.oldest_arrival))
                if device in self._woken or now >= deadline:
                    self._woken.discard(device)
                    return None
                soonest = min([deadline, *(now + wait for wait, _ in waits if wait is not None)])
                # Lets go of the lock. `deliver` and `wake` change their state under it before they
                # notify, so nothing is missed between the look above and this wait.
                self._due[device].wait(soonest - now)

    def answer(self, batch: Batch, actions: np.ndarray, resets: Collection[Group] = ()) -> None:
        """Sends `actions [B, ...]` to the groups of a batch, and releases its slots.

        `resets`: groups that are told to reset their environments instead, those whose env server
        knows of that.
        """
        with self._changed:
            resets = self._serving.reset(resets)
            self._serving.answered(batch)  # first: from here on the slots may be leased anew
            assert self._spec is not None, "a group acts once there is a spec"
            largest, now = self._spec.action.largest, self.clock()
            holders = [item.group.lease.holder for item in batch.pending]  # None: it has ended
            for item in batch.pending:
                item.group.answered_seconds = now  # from this moment it owes a step
        # Without the lock, so that others deliver meanwhile. A connection that ends here drops what
        # it is given; if its slots are leased anew, that is another one's group.
        answers = defaultdict[HubConnection, list[bytes]](list)
        for holder, (group, sequence, *_), rows in zip(
            holders, batch.pending, batch.rows, strict=True
        ):
            if holder is not None:
                answers[holder].append(
                    pack_reset(group.number, sequence)
                    if group in resets
                    else pack_actions(group.number, sequence, actions[rows], largest)
                )
        for holder, payloads in answers.items():
            holder.send_actions(payloads)

    def take_ended(self, device: int = 0) -> list[int]:
        """Streams of that inference device that were cut since the last call."""
        with self._changed:
            return self._serving.slots.take_cut(device)

    def wait_until(self, condition: Callable[[], object], timeout: float) -> bool:
        """Waits until `condition`, tried at every change, holds; True if it does."""
        with self._changed:
            return bool(self._changed.wait_for(condition, timeout))

    def wait_for_spec(self, timeout: float, given: EnvSpec | None = None) -> EnvSpec | None:
        """A first env server's spec, or else one that is `given`; None if none arrived in time."""
        with self._changed:
            self._spec = self._spec or given
            self._changed.wait_for(lambda: self._spec is not None, timeout)
            return self._spec

    def wait_for_env_server(self, timeout: float) -> bool:
        """Waits until an env server has built the run's environment; True if one has in time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._has_spec, timeout)

    @property
    def spec(self) -> EnvSpec | None:
        """Of the environments: given, or taken from the first env server that is ready."""
        with self._changed:
            return self._spec

    def live_slots(self, role: Role, device: int | None = None) -> np.ndarray:
        """Slots of this role whose stream is open, `[L] int32`, sorted; of one device, or all."""
        with self._changed:
            return self._serving.live_slots(role, device)

    @property
    def num_disabled(self) -> int:
        """Environments that fail too often, and that their env servers play no more."""
        with self._changed:
            return self._serving.num_disabled

    def ledger(self) -> dict[str, int]:
        """The accounts of the serving core, all at one moment; see `learner.serving.ledger`."""
        with self._changed:
            return self._serving.accounts()

    def close(self, error: EndError | None) -> None:
        """Admits no env server any more, and ends every connection with `error`, or quietly."""
        with self._changed:
            self._is_open = False
            self._registry.closing()
            for lease in self._serving.slots.leases.values():
                # Leases stay: nothing acts any more, and the ledger counts their open pages.
                lease.holder.end(error)
            self._notify_all()

    # Below, the caller holds the lock.

    def _notify_all(self) -> None:
        for condition in (self._changed, *self._due):
            condition.notify_all()

    def _end(self, lease: Lease, error: EndError | None, why: str = "its connection ended") -> None:
        # Lease and connection end in one moment. Else the env server's next step, which is fenced,
        # could be what the connection ends with.
        self._serving.end(lease)
        why, is_refused = (error.details, error.is_refusal) if error else (why, False)
        self._registry.left(lease.number, why, self.clock(), is_refused=is_refused)
        lease.holder.end(error)
        lease.holder = None  # a batch that is being computed keeps the lease, not its connection
        self._notify_all()

    def _end_superseded(self, keys: Collection[int]) -> None:
        for lease in [each for each in self._serving.slots.leases.values() if each.key in keys]:
            self._end(lease, None, "it is back on another connection")


def _status_of(lease: Lease, quarantined: int, now: float) -> EnvServerStatus:
    sizes = Counter[Role]()
    for group in lease.groups:
        sizes[group.role] += len(group.slots)
    return EnvServerStatus(
        name=lease.peer,
        host=lease.peer.rpartition(":")[0],
        state="building",
        since_seconds=now,
        groups=len(lease.groups),
        environments=sizes.total(),
        training_slots=sizes["training"],
        evaluation_slots=sizes["evaluation"],
        quarantined=quarantined,
    )


def _turns_of(lease: Lease) -> list[Turn]:
    return [
        Turn(
            len(group.slots),
            group.role == "training",
            group.sequence,
            not (group.queued or group.dispatched),
            group.answered_seconds,
        )
        for group in lease.groups
    ]
