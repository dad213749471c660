"""Which env server shall return, for more slots or for others: a lease never changes."""

import math
from collections.abc import Sequence

from learner.serving.leases import Lease, SlotTable
from learner.serving.slot_deal import Role, deal

# An env server that leaves may be back at once, and then nothing was missing.
PATIENCE_SECONDS = 10.0
# To return cuts all streams of an env server. That is worth it if a quarter of them, or of all
# slots that train, begin to train; or for one that measures where less than a quarter of those
# slots are in use, and a round of evaluation takes more than four times as long.
_WORTH_ONE_IN = 4


def could_grow(table: SlotTable) -> Lease | None:
    """The live lease that lacks most, if slots are free that its env server may have."""
    if not table.num_free:
        return None
    leases = (each for each in table.leases.values() if each.is_ready or not each.is_held_back)
    lease = max(leases, key=lambda lease: lease.num_missing, default=None)
    return lease if lease is not None and lease.num_missing else None


def could_do_better(table: SlotTable) -> Lease | None:
    """The live lease whose env server, if it returned now, would do what too few do.

    That is to train, where who trained has left and others only measure; else to begin to measure,
    where few do. Of several it is the one with most to gain, then the one with the fewest streams
    to lose. Whoever has returned for that has nothing to gain by it any more, and each return adds
    slots that train or an env server that measures, so this ends.
    """
    if not table.num_free:
        return None
    num_evaluation = table.num_slots - table.num_training
    num_measuring = num_evaluation - _of(table, table.free, "evaluation")
    few_measure = num_measuring * _WORTH_ONE_IN < num_evaluation
    # One for all that hold as many: there may be thousands, and the hub's lock is held meanwhile.
    kinds: dict[tuple[int, ...], Lease] = {}
    for lease in table.leases.values():
        if lease.is_ready:  # of another one nobody knows whether it will be
            kinds.setdefault(_held_by_lane(lease, len(table.lanes)), lease)
    gains: list[tuple[int, int, Lease]] = []
    for held, lease in kinds.items():
        measuring = _of(table, held, "evaluation")
        # Only who measures with more than it has to can train with more.
        has_spare, may_measure = measuring > int(sum(held) > 1), few_measure and not measuring
        if not (has_spare or may_measure):
            continue
        dealt = deal(
            [left + own for left, own in zip(table.free, held, strict=True)],
            sum(held),
            table.lanes,
            num_env_servers=table.num_env_servers or 1,
        )
        trains = _of(table, dealt, "training") - _of(table, held, "training")
        begins = may_measure and _of(table, dealt, "evaluation") > 0
        is_worth_it = trains * _WORTH_ONE_IN >= min(sum(held), table.num_training)
        if (trains > 0 and is_worth_it) or begins:
            gains.append((max(trains, 0), -sum(held), lease))
    return max(gains, key=lambda gain: gain[:2])[2] if gains else None


def _held_by_lane(lease: Lease, num_lanes: int) -> tuple[int, ...]:
    held = [0] * num_lanes
    for group in lease.groups:
        held[group.lane] += len(group.slots)
    return tuple(held)


def _of(table: SlotTable, numbers: Sequence[int], role: Role) -> int:
    return sum(
        number for lane, number in zip(table.lanes, numbers, strict=True) if lane.role == role
    )


class Patience:
    """Calls nobody back for what may pass. Not thread-safe: the hub holds the lock.

    That long after there was first something to gain, and as long again after each return, it names
    who shall return. In that time it looks ten times.
    """

    def __init__(self, seconds: float = PATIENCE_SECONDS):
        self._seconds = seconds
        self._since: float | None = None
        self._next_look = -math.inf

    def look(self, table: SlotTable, now: float) -> Lease | None:
        """Who shall return now, if anybody; see `could_do_better`."""
        if now < self._next_look:
            return None
        self._next_look = now + self._seconds / 10
        lease = could_do_better(table)
        if lease is None:
            self._since = None
        elif self._since is None:
            self._since = now
        elif now - self._since >= self._seconds:
            self._since = None
            return lease
        return None
