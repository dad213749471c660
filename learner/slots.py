"""Slots as leases: which environment of which stream may use which row of the device's tables."""

import hashlib
from dataclasses import dataclass, field

import numpy as np

from seedrl.types import StepType


class NoFreeSlotError(Exception):
    """Every slot is leased: the env server should come back later."""


@dataclass(eq=False)
class Group:
    """Environments that step together: one message each way.

    Attributes:
      slots: `[E] int32`.
      streams: `[E] int64`, the identity of each slot's stream of experience under this lease.
      evaluation: whether its experience only measures.
      sequence: the sequence number that its next step must carry.
      seen: the sequence number after the highest that has arrived.
      queued, dispatched: where its one step in flight is, if there is one.
    """

    lease: "Lease"
    number: int
    slots: np.ndarray
    streams: np.ndarray
    evaluation: bool
    sequence: int = 0
    seen: int = 0
    queued: bool = False
    dispatched: bool = False


@dataclass(eq=False)
class Lease:
    """The slots of one env server's stream, for as long as it is open.

    Attributes:
      key: names the lease among those of all sessions, to env servers that outlive a session.
      num_missing: how many more slots the env server has asked for.
    """

    number: int
    key: int
    peer: str
    num_missing: int
    groups: list[Group] = field(default_factory=list)
    ended: bool = False


class SlotTable:
    """All slots: training slots 0..N-1, then evaluation slots. Not thread-safe.

    A slot's epoch counts its leases. An environment's seed is a hash of (seed, slot, epoch): a
    reconnect replays no episodes. `seed` must differ between the sessions of a run.
    """

    def __init__(self, *, training: int, evaluation: int, seed: int):
        self.num_training = training
        self.num_slots = training + evaluation
        self.seed = seed
        self.epochs = np.zeros(self.num_slots, np.int64)
        self.rows = np.zeros(self.num_slots, np.int64)
        self.last_step_type = np.full(self.num_slots, StepType.LAST, np.uint8)
        self._leases = 0
        self._num_ending = 0  # slots of ended leases whose step is being computed
        # An env server of any size gets its fair share of evaluation slots: the two kinds alternate
        # in proportion.
        place = np.concatenate([(np.arange(n) + 0.5) / max(n, 1) for n in (training, evaluation)])
        self._order = {
            int(slot): rank for rank, slot in enumerate(np.argsort(place, kind="stable"))
        }
        self._free = sorted(range(self.num_slots), key=self._order.__getitem__)

    @property
    def num_free(self) -> int:
        """Slots that can be leased now."""
        return len(self._free)

    def lease(self, num_envs: int, num_groups: int, peer: str) -> Lease:
        """Leases at most `num_envs` free slots.

        Raises NoFreeSlotError if there is none; also if there will be more in a moment, once the
        steps of ended leases have been computed: a lease never grows.
        """
        taken = sorted(self._free[:num_envs])
        if not taken:
            raise NoFreeSlotError(f"all {self.num_slots} slots are leased")
        if len(taken) < num_envs and self._num_ending:
            raise NoFreeSlotError(f"{self._num_ending} slots are about to be freed")
        self._free = self._free[num_envs:]
        self._leases += 1
        lease = Lease(
            self._leases, self.seed << 32 | self._leases, peer, num_missing=num_envs - len(taken)
        )
        training = [slot for slot in taken if slot < self.num_training]
        evaluation = taken[len(training) :]
        # A peer may ask for any number of groups; none is empty.
        num_parts = max(1, min(num_groups, len(training)))
        parts = [part for part in np.array_split(training, num_parts) if len(part)]
        parts += [np.array(evaluation)] if evaluation else []
        for slots in parts:
            lease.groups.append(self._open(lease, slots.astype(np.int32)))
        return lease

    def _open(self, lease: Lease, slots: np.ndarray) -> Group:
        self.epochs[slots] += 1
        self.rows[slots] = 0
        # A stream begins as if an episode had just ended: its first row must be FIRST.
        self.last_step_type[slots] = StepType.LAST
        streams = self.epochs[slots] * self.num_slots + slots
        is_evaluation = bool(slots[0] >= self.num_training)
        return Group(lease, len(lease.groups), slots, streams, is_evaluation)

    def seeds(self, group: Group) -> list[int]:
        """A seed below 2^31 per environment of the group, never given before in this run."""
        return [
            environment_seed(self.seed, int(slot), int(self.epochs[slot])) for slot in group.slots
        ]

    def end(self, lease: Lease) -> None:
        """Ends a lease. Slots whose step is being computed stay taken until `release`."""
        lease.ended = True
        for group in lease.groups:
            if group.dispatched:
                self._num_ending += len(group.slots)
            else:
                self._free_group(group)

    def release(self, group: Group) -> None:
        """The group's step has been computed; frees its slots if its lease has ended meanwhile."""
        group.dispatched = False
        if group.lease.ended:
            self._num_ending -= len(group.slots)
            self._free_group(group)

    def _free_group(self, group: Group) -> None:
        self._free = sorted([*self._free, *map(int, group.slots)], key=self._order.__getitem__)


def environment_seed(seed: int, slot: int, epoch: int) -> int:
    """A seed in [0, 2^31), different for each seed, slot and epoch up to hash collisions."""
    return _hash(f"{seed}/{slot}/{epoch}")


def session_seed(run_seed: int, session: str) -> int:
    """The seed of a session's environments, in [0, 2^31)."""
    return _hash(f"{run_seed}/{session}")


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little") >> 1
