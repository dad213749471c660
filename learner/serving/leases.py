"""Slots as leases: which environment of which stream may use which row of the device's tables.

A lease never changes. Free slots go to the env server that asks, the lowest first. To rebalance
slots the hub closes a connection; the env server connects again and gets another lease
(`SlotTable.returning`).
"""

import hashlib
import itertools
import math
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from seedrl.types import StepType

Role = Literal["training", "evaluation"]


class NoFreeSlotError(Exception):
    """Every slot is leased: the env server should return later."""


class SlotRange(NamedTuple):
    """`size` slots of a role that one device acts for: `first`, and every `step`-th after it."""

    role: Role
    first: int
    size: int
    step: int = 1
    device: int = 0  # the number of the inference device that acts for them

    @property
    def slots(self) -> range:
        return range(self.first, self.first + self.size * self.step, self.step)


def ranges_of(training: int, evaluation: int, num_devices: int = 1) -> tuple[SlotRange, ...]:
    """Of N training slots, 0 to N - 1, one range a device; and the evaluation slots after them.

    Training slot s is acted for by device s modulo n, so every device has slots of all degrees of
    exploration, and as many as the others but for one. The first one evaluates.
    """
    numbers = range(num_devices)
    ranges = [
        SlotRange("training", first, len(range(first, training, num_devices)), num_devices, first)
        for first in numbers
    ]
    return (*ranges, SlotRange("evaluation", training, evaluation))


@dataclass(eq=False, slots=True)
class Group:
    """Environments that step together: one message each way.

    All of it changes under the hub's lock only.
    """

    lease: "Lease"
    number: int
    slots: np.ndarray  # [E] int32
    # [E] int64: names each slot's stream of experience. Batches copy it, because a restarted
    # environment gets a new stream.
    streams: np.ndarray
    role: Role
    range_number: int  # an index of `SlotTable.ranges` and `Serving.queues`
    last_step_type: bytes  # of the E rows that were accepted last
    sequence: int = 0  # the number that its next step must carry
    # Where its one step in flight is. At most one of the two is true.
    queued: bool = False
    dispatched: bool = False
    answered_seconds: float = 0.0  # when it was ready, or got its newest actions: hub's clock
    seeds: Sequence[int] = ()  # of its environments


@dataclass(eq=False, slots=True)
class Lease:
    """The slots of one env server's connection, for as long as it is open.

    Until its env server is ready its slots are only reserved: no batch waits for them.
    """

    number: int
    # By which an env server that reconnects names the lease that it had. Secret and random, so that
    # only the env server that was given it can end it, and no two learners ever give the same one.
    key: int
    peer: str
    num_missing: int  # slots that the env server asked for and did not get
    holder: Any = None  # the connection, which the core keeps and does not look at
    groups: list[Group] = field(default_factory=list)
    num_disabled: int = 0  # environments that its env server has disabled, and did not offer
    minor: int = 0  # of its env server's wire version
    is_ready: bool = False  # its environments are built
    # It has left `SlotTable.leases`; steps in flight still refer to it.
    ended: bool = False
    # When its last step that was acted on arrived, and when that was asked for: hub's clock. Only
    # acting threads use them.
    last_arrival: float = 0.0
    last_answered: float = -math.inf

    @property
    def num_slots(self) -> int:
        return sum(len(group.slots) for group in self.groups)


class SlotTable:
    """All slots: training slots 0..N-1, then evaluation slots, see `ranges_of`. Not thread-safe.

    A slot's epoch counts its leases. An environment's seed is a hash of (seed, slot, epoch): a
    reconnect replays no episodes. `seed` must differ between the sessions of a run.
    """

    def __init__(
        self,
        *,
        training: int,
        evaluation: int,
        seed: int,
        num_devices: int = 1,
    ):
        """`num_devices`: the inference devices, which divide the slots."""
        self.ranges = ranges_of(training, evaluation, num_devices)
        self.num_devices = num_devices
        self.num_slots = training + evaluation
        self.seed = seed
        # Arrays are [S], one row for each slot.
        self.epochs = np.zeros(self.num_slots, np.int64)  # leases so far
        self.rows = np.zeros(self.num_slots, np.int64)  # of its stream that batches have taken
        self._num_used = np.zeros(self.num_slots, np.int64)  # earlier streams that had such rows
        self.leases: dict[int, Lease] = {}  # by number, those that are live
        self.cut: list[int] = []  # streams that were cut and not yet reported
        self._num_leases = 0
        self._ending: list[Group] = []  # of ended leases, while their step is being computed
        self._free = [list(each.slots) for each in self.ranges]  # of each range, ascending

    @property
    def num_free(self) -> int:
        """Slots that can be leased now."""
        return sum(self.free)

    @property
    def free(self) -> list[int]:
        """Number of slots of each range that can be leased now."""
        return list(map(len, self._free))

    def returning(self, *, for_roles: bool = True) -> Lease | None:
        """The ready lease whose env server would fill free slots if it connected again, or None.

        Args:
          for_roles: an idle role is worth that the streams of the largest lease are cut.
        """
        # Each return fills slots or gives a role its first one, so this ends.
        ready = [lease for lease in self.leases.values() if lease.is_ready]
        if not self.num_free or not ready:
            return None
        most = max(ready, key=lambda lease: lease.num_missing)
        if most.num_missing:
            return most
        # If no slot of a role is in use (the only env server that evaluated has left, for example),
        # `deal` gives that role at least one environment of the largest.
        largest = max(ready, key=lambda lease: lease.num_slots)
        # A single environment cannot have two roles: then it trains.
        can_share = largest.num_slots > 1 or len(ready) > 1
        idle = self._idle_roles() if for_roles else []
        return largest if "training" in idle or (idle and can_share) else None

    def _idle_roles(self) -> list[Role]:
        sizes = by_role(self.ranges, [each.size for each in self.ranges])
        left = by_role(self.ranges, self.free)
        roles = zip(get_args(Role), sizes, left, strict=True)
        return [role for role, size, number in roles if size and size == number]

    def holding(self) -> Iterator[Group]:
        """Groups that hold slots: of live leases, and of others while their step is computed."""
        for lease in self.leases.values():
            yield from lease.groups
        yield from self._ending

    def lease(
        self,
        num_envs: int,
        num_groups: int,
        peer: str,
        *,
        holder: object = None,
        is_separate: bool = False,
    ) -> Lease:
        """Reserves at most `num_envs` free slots, the lowest of each range; see `deal`.

        With `is_separate` each is a group. Raises NoFreeSlotError.
        """
        dealt = deal(self.free, num_envs, self.ranges, num_groups=num_groups)
        taken = [free[:number] for free, number in zip(self._free, dealt, strict=True)]
        # An env server asks again every second: nothing is changed for one that gets none.
        if not sum(dealt):
            raise NoFreeSlotError(f"all {self.num_slots} slots are leased")
        # There will be more in a moment, and a lease never grows.
        if sum(dealt) < num_envs and self._ending:
            num_ending = sum(len(group.slots) for group in self._ending)
            raise NoFreeSlotError(f"{num_ending} slots are about to be freed")
        self._free = [free[number:] for free, number in zip(self._free, dealt, strict=True)]
        self._num_leases += 1
        # Not 0, which is a report without a lease to an env server.
        key, num_missing = secrets.randbits(64) or 1, num_envs - sum(dealt)
        lease = Lease(self._num_leases, key, peer, num_missing, holder)
        self.leases[lease.number] = lease
        groups = grouped(taken, self.ranges, num_groups)
        if is_separate:
            groups = [(place, [slot]) for place, slots in groups for slot in slots]
        for place, slots in groups:
            lease.groups.append(self._open(lease, place, np.array(slots, np.int32)))
        return lease

    def _open(self, lease: Lease, range_number: int, slots: np.ndarray) -> Group:
        self._num_used[slots] += self.rows[slots] > 0
        self.epochs[slots] += 1  # so that its stream and its seeds are new ones
        self.rows[slots] = 0
        # A stream starts as if an episode had just ended: its first row must be FIRST.
        last_step_type = bytes([StepType.LAST]) * len(slots)
        streams, number = self._streams(slots), len(lease.groups)
        role = self.ranges[range_number].role
        return Group(lease, number, slots, streams, role, range_number, last_step_type)

    def seeds(self, group: Group, *, repeats_unused: bool = False) -> list[int]:
        """A seed below 2^31 per environment of the group, never given before in this run.

        With `repeats_unused` it is given again if no row was acted on: then a result does not
        depend on whether an env server was lost before its first batch.
        """
        lives = self._num_used + 1 if repeats_unused else self.epochs
        return [environment_seed(self.seed, int(slot), int(lives[slot])) for slot in group.slots]

    def cut_row(self, group: Group, row: int) -> None:
        """Begins a new stream in a slot of a live lease, as another lease would."""
        slot = group.slots[row]
        # Reported before the slot has another stream: replay ends this one.
        self.cut.append(int(group.streams[row]))
        self._num_used[slot] += self.rows[slot] > 0
        self.epochs[slot] += 1
        self.rows[slot] = 0
        group.streams[row] = self._streams(slot)

    def end(self, lease: Lease) -> None:
        """Ends a live lease. Slots whose step is being computed stay taken until `release`."""
        del self.leases[lease.number]
        lease.ended = True
        for group in lease.groups:
            self.cut.extend(group.streams.tolist())
            if group.dispatched:
                self._ending.append(group)
            else:
                self._free_group(group)

    def release(self, group: Group) -> None:
        """Frees the slots of an ended lease's group, whose last step has been computed."""
        self._ending.remove(group)
        self._free_group(group)

    def _free_group(self, group: Group) -> None:
        # Ascending: few env servers have the same slots after any order of joining and leaving.
        free = self._free[group.range_number]
        self._free[group.range_number] = sorted([*free, *map(int, group.slots)])

    def take_cut(self, device: int) -> list[int]:
        """Streams that were cut since the last call, of slots that this device acts for."""
        if not self.cut:
            return []
        own = {slot for each in self.ranges if each.device == device for slot in each.slots}
        taken = [stream for stream in self.cut if stream % self.num_slots in own]
        self.cut = [stream for stream in self.cut if stream % self.num_slots not in own]
        return taken

    def _streams(self, slots: np.ndarray) -> np.ndarray:
        return self.epochs[slots] * self.num_slots + slots


def deal(
    free: Sequence[int],
    offered: int,
    ranges: Sequence[SlotRange],
    *,
    num_groups: int = 1,
) -> list[int]:
    """Number of slots of each range that an env server gets: `min(offered, sum(free))` in all.

    Args:
      free: slots of each range that are not leased.
      offered: environments of the env server.
      num_groups: groups that it wants to step one by one.
    """
    dealt = [0] * len(ranges)
    numbers = _of_roles(free, offered, ranges)
    # A group's slots are of one range, since it sends one message for one batch. So a group's worth
    # at a time goes to the range with the most free slots, and ranges fill up alike.
    for role, number in numbers.items():
        own = [place for place, slots in enumerate(ranges) if slots.role == role]
        parts = max(1, num_groups) if role == "training" else 1
        left = number
        while left:
            place = max(own, key=lambda place: free[place] - dealt[place])
            taken = min(-(-number // parts), left, free[place] - dealt[place])
            dealt[place] += taken
            left -= taken
    return dealt


def grouped(
    taken: Sequence[Sequence[int]], ranges: Sequence[SlotRange], num_groups: int
) -> list[tuple[int, Sequence[int]]]:
    """The groups of an env server: of each its range, and which of the slots `taken` there.

    Evaluation is one group. A peer may ask for any number of groups; none is empty.
    """
    is_training = [each.role == "training" for each in ranges]
    num_ranges = sum(bool(slots) and ours for slots, ours in zip(taken, is_training, strict=True))
    groups: list[tuple[int, Sequence[int]]] = []
    for place, slots in enumerate(taken):
        parts = -(-num_groups // num_ranges) if slots and is_training[place] else 1
        parts = max(1, min(parts, len(slots)))
        size, larger = divmod(len(slots), parts)
        ends = [size * part + min(part, larger) for part in range(parts + 1)]
        own = [slots[start:end] for start, end in itertools.pairwise(ends)]
        groups += [(place, part) for part in own if part]
    return groups


def by_role(ranges: Sequence[SlotRange], numbers: Sequence[int]) -> tuple[int, int]:
    """A number for each range, added up over the training ranges and over the evaluation ranges."""
    training, evaluation = (
        sum(number for each, number in zip(ranges, numbers, strict=True) if each.role == role)
        for role in get_args(Role)
    )
    return training, evaluation


def _of_roles(free: Sequence[int], offered: int, ranges: Sequence[SlotRange]) -> dict[Role, int]:
    # Each env server gets its part of both roles: if one only trained and another only evaluated,
    # each would wait while the other works.
    sizes = by_role(ranges, [each.size for each in ranges])
    left = by_role(ranges, free)
    trains, evaluates = (size > number for size, number in zip(sizes, left, strict=True))
    # At least one of two environments or more evaluates; so does a single one if others train and
    # none evaluates. Where one role has too few free slots, the other takes the rest.
    least = int(offered > 1 or (trains and not evaluates))
    # Rounded up: an environment more trains, rather than evaluates.
    share = -(-offered * sizes[0] // max(1, sum(sizes)))
    share = min(share, offered - min(least, left[1]))
    training = min(left[0], max(share, offered - left[1]))
    return {"training": training, "evaluation": min(left[1], offered - training)}


def environment_seed(seed: int, slot: int, epoch: int) -> int:
    """A seed in [0, 2^31), different for each seed, slot and epoch up to hash collisions."""
    return _hash(f"{seed}/{slot}/{epoch}")


def session_seed(run_seed: int, session: str) -> int:
    """The seed of a session's environments, in [0, 2^31)."""
    return _hash(f"{run_seed}/{session}")


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little") >> 1
