"""The serving core: leases, fencing, batching, page positions; no threads, clock or network."""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from learner.serving.batching import BatchQueue, BatchRule, Pending
from learner.serving.leases import Group, Lease, Role, SlotTable
from seedrl.types import StepType
from seedrl.wire.contract import MOST_GROUPS, RESET_MINOR
from seedrl.wire.framing import WireError

# Of the step types of a message, as bytes: every message passes here, and most are so short that
# arrays would take ten times as long.
_IS_FIRST = bytes(kind == StepType.FIRST for kind in range(256))
_IS_LAST = bytes(kind == StepType.LAST for kind in range(256))


class Batch(NamedTuple):
    """Steps to be acted on together, a value of its own. A slot occurs at most once."""

    pending: list[Pending]  # the groups' steps, in row order
    slots: np.ndarray  # [B] int32
    streams: np.ndarray  # [B] int64, of the moment in which it was taken
    positions: np.ndarray  # [B] int32, the row of the slot's open page
    role: Role
    oldest_arrival: float  # of the step that waited longest, by the hub's clock
    number: int  # of batches that were taken before
    rows: Sequence[slice | np.ndarray]  # which of the B rows are those of each of `pending`
    is_late: bool = False  # taken at the deadline, with fewer rows than a batch aims at


class Serving:
    """Leases, queues and accounts of all env servers. The hub's lock guards all of it.

    A step's way: `step` takes it into its queue, `take` into a batch, whose slots then stay
    taken, even if their lease ends, until `answered` lets them go.
    """

    def __init__(
        self,
        slots: SlotTable,
        *,
        page_steps: int,
        rule: BatchRule,
        evaluation_rule: BatchRule | None = None,
    ):
        """`rule` is for training slots, and for evaluation slots if they have none of their own."""
        self.slots = slots
        self.page_steps = page_steps
        self.rule = rule
        rules = {"training": rule, "evaluation": evaluation_rule or rule}
        self.queues = [BatchQueue(own, rules[own.role]) for own in slots.ranges]
        self.num_batches = 0  # that were taken
        # Rows by what has happened to them; `accounts` adds those to which something will happen.
        self.ledger: Counter[str] = Counter()
        self._failed: set[int] = set()  # slots that were left by a failure; see `rounds`

    def set_deadline(self, seconds: float) -> None:
        """Changes the longest wait of a training step for others."""
        self.rule = self.rule._replace(deadline_seconds=seconds)
        for queue in self.queues:
            if queue.role == "training":
                queue.rule = self.rule

    def queues_of(self, device: int, roles: Collection[Role]) -> list[BatchQueue]:
        """The queues of these roles that an inference device acts for."""
        return [queue for queue in self.queues if queue.device == device and queue.role in roles]

    def live_slots(self, role: Role, device: int | None = None) -> np.ndarray:
        """Slots of this role whose stream is open, `[L] int32`, sorted; of one device, or all."""
        slots = [
            group.slots
            for lease in self.slots.leases.values()
            for group in lease.groups
            if lease.is_ready and group.role == role
            if device in (None, self.queues[group.range_number].device)
        ]
        return np.sort(np.concatenate([np.empty(0, np.int32), *slots]))

    def lease(
        self,
        num_envs: int,
        num_groups: int,
        peer: str,
        *,
        holder: object = None,
    ) -> Lease:
        """Reserves slots; see `SlotTable.lease`."""
        if is_separate := self.rule.is_separate:
            num_envs = min(num_envs, MOST_GROUPS)
        lease = self.slots.lease(num_envs, num_groups, peer, holder=holder, is_separate=is_separate)
        for group in lease.groups:
            group.seeds = self.slots.seeds(group, repeats_unused=self.rule.is_complete)
        return lease

    def ready(self, lease: Lease) -> None:
        """Takes that its environments are built: from now on batches count on them."""
        lease.is_ready = True
        self._failed.difference_update(_training_slots(lease))
        for group in lease.groups:
            self.queues[group.range_number].add_live(len(group.slots))
        self._count_missing()

    def fail(self, lease: Lease) -> None:
        """Takes that an environment has failed, because of which the lease ends now."""
        # Its env server may return with fewer environments, or end because none is left.
        if self.rule.is_aligned:
            self._failed.update(_training_slots(lease))

    @property
    def num_disabled(self) -> int:
        """Environments that fail too often, and that their env servers play no more."""
        return sum(each.num_disabled for each in self.slots.leases.values() if each.is_ready)

    def _count_missing(self) -> None:
        for queue in self.queues:
            # An environment that was disabled since this learner started is in both.
            queue.set_missing(max(self.num_disabled, len(self._failed)))

    def returning(self) -> Lease | None:
        """A lease whose env server should connect again; see `SlotTable.returning`."""
        # Lock step waits for all slots anyway: no stream is cut for an idle role.
        return self.slots.returning(for_roles=not self.rule.is_complete)

    def end(self, lease: Lease) -> None:
        """Closes a lease: strikes what it has queued and discards its open pages."""
        if lease.ended:
            return
        for queue in self.queues:
            self.ledger["struck"] += queue.strike(lease)
        for group in lease.groups:
            if lease.is_ready:
                # Until its env server was ready no batch had counted on it.
                self.queues[group.range_number].add_live(-len(group.slots))
            if not group.dispatched:  # else `answered` does this
                self._let_go(group)
        self.slots.end(lease)  # late: above, its groups still hold their slots
        self._count_missing()

    def _let_go(self, group: Group) -> None:
        # The group will never fill its open pages.
        if group.role == "training":
            self.ledger["discarded"] += self._open_rows(group)

    def _open_rows(self, group: Group) -> int:
        # That have been acted on: a row in a batch is counted as dispatched.
        acted = self.slots.rows[group.slots] - group.dispatched
        return int((acted % self.page_steps).sum())

    def accounts(self) -> dict[str, int]:
        """Rows in every account of `learner.serving.ledger` that this side of replay can see."""
        groups = list(self.slots.holding())
        return {
            **self.ledger,
            "queued": sum(queue.count_rows() for queue in self.queues),
            "dispatched": sum(len(group.slots) for group in groups if group.dispatched),
            "partial": sum(self._open_rows(group) for group in groups if group.role == "training"),
        }

    def reject(self, group: Group) -> None:
        """Counts a step of `group` that has arrived and cannot be read."""
        self.ledger["received"] += len(group.slots)
        self.ledger["rejected"] += len(group.slots)

    def step(self, step: Pending) -> tuple[BatchQueue, list[int]]:
        """Accepts a step; its queue, and slots whose environment was restarted in an episode.

        Raises WireError: then only the ledger has changed.
        """
        group = step.group
        self.ledger["received"] += len(group.slots)
        restarted = self._check(group, step.sequence, step.timestep.step_type)
        for row in restarted:
            self._cut(group, row)
        group.last_step_type = step.timestep.step_type.tobytes()  # a copy: the message goes
        group.sequence += 1
        group.queued = True
        self.ledger["accepted"] += len(group.slots)
        (queue := self.queues[group.range_number]).put(step)
        return queue, [int(group.slots[row]) for row in restarted]

    def _cut(self, group: Group, row: int) -> None:
        # An environment was restarted in the middle of an episode: a new stream starts there. No
        # row of the group is queued or dispatched, because its step has just been checked.
        slot = int(group.slots[row])
        if group.role == "training":
            self.ledger["discarded"] += int(self.slots.rows[slot] % self.page_steps)
        self.slots.cut_row(group, row)  # after the count: a new stream has no open rows

    def _check(self, group: Group, sequence: int, step_type: np.ndarray) -> list[int]:
        """The rows whose stream this step cuts: FIRST, although the episode had not ended."""
        # Each way out of here counts the rows in one account, so that the sums hold.
        where = f"group {group.number} of {group.lease.peer}"
        if group.lease.ended:
            self.ledger["fenced"] += len(group.slots)
            raise WireError(f"{where}: the lease has ended; open a new stream")
        if sequence < group.sequence:
            self.ledger["duplicate"] += len(group.slots)
            raise WireError(
                f"{where}: expected sequence {group.sequence}, got {sequence}; a step was doubled"
            )
        if group.queued or group.dispatched:
            self.ledger["rejected"] += len(group.slots)
            raise WireError(f"{where}: expected to wait for actions, got a second step in flight")
        if sequence != group.sequence:
            self.ledger["rejected"] += len(group.slots)
            raise WireError(
                f"{where}: expected sequence {group.sequence}, got {sequence}; a step was lost"
            )
        is_due = group.last_step_type.translate(_IS_LAST)
        is_first = step_type.tobytes().translate(_IS_FIRST)
        if is_first == is_due:
            return []
        differing = [row for row, due in enumerate(is_due) if due != is_first[row]]
        for row in differing:
            if is_due[row]:
                self.ledger["rejected"] += len(group.slots)
                raise WireError(
                    f"{where}, row {row}: expected FIRST (0), got step type {step_type[row]}"
                )
        return differing

    def take(self, queue: BatchQueue) -> Batch:
        """Takes a queue's batch; its slots stay taken until `answered`."""
        is_late = queue.num_rows < queue.target_rows
        pending = queue.take()
        slots_of = [item.group.slots for item in pending]
        slots = np.concatenate(slots_of)
        streams = np.concatenate([item.group.streams for item in pending])
        rows = queue.rule.rows(slots_of)
        if queue.rule.is_complete or queue.rule.is_aligned:  # all slots, in their order
            order = np.argsort(slots)
            slots, streams = slots[order], streams[order]
        rows_before = self.slots.rows[slots]
        if queue.rule.is_aligned:
            rows_before = self._aligned(rows_before)
        positions = (rows_before % self.page_steps).astype(np.int32)
        # Counted now, not when it is answered: a lease that ends meanwhile has used this row.
        self.slots.rows[slots] = rows_before + 1
        for item in pending:
            item.group.queued, item.group.dispatched = False, True
        self.num_batches += 1
        arrival, number = pending[0].arrival, self.num_batches - 1
        return Batch(pending, slots, streams, positions, queue.role, arrival, number, rows, is_late)

    def _aligned(self, rows: np.ndarray) -> np.ndarray:
        # Rows before a batch of all slots, without those of open pages if these differ.
        positions = rows % self.page_steps
        if (positions == positions[0]).all():
            return rows
        self.ledger["discarded"] += int(positions.sum())
        return rows - positions

    def reset(self, groups: Collection[Group]) -> list[Group]:
        """Takes that these groups are told to reset their environments; those that can be.

        Their next rows have to be FIRST. Nothing may be learned from them: their streams go on.
        """
        can = [group for group in groups if group.lease.minor >= RESET_MINOR]
        for group in can:
            assert group.role == "evaluation", "an episode that is learned from has an end"
            group.last_step_type = bytes([StepType.LAST]) * len(group.slots)
        return can

    def answered(self, batch: Batch) -> list[Group]:
        """Frees the slots of a batch that was computed; returns the groups whose lease is open."""
        rows = len(batch.slots)
        self.ledger["answered"] += rows
        if batch.role == "evaluation":
            self.ledger["evaluation"] += rows
        else:
            num_full = np.count_nonzero(batch.positions == self.page_steps - 1)
            self.ledger["completed"] += int(num_full) * self.page_steps
        for item in batch.pending:
            item.group.dispatched = False
            if item.group.lease.ended:  # while the batch was computed
                self.slots.release(item.group)
                self._let_go(item.group)
        return [item.group for item in batch.pending if not item.group.lease.ended]


def _training_slots(lease: Lease) -> list[int]:
    return [slot for group in lease.groups if group.role == "training" for slot in group.slots]
