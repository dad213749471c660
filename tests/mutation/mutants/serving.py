"""Bugs in serving: leases, fences, batches, and which actions go to whom."""

from tests.mutation.mutant import Mutant

_SERVING = "learner/serving/core.py"
_SLOTS = "learner/serving/leases.py"
_HUB = "learner/serving/hub.py"
_ACTING = "learner/acting/loop.py"
_ACTOR = "learner/acting/actor.py"

MUTANTS = (
    Mutant(
        "ended_lease_not_fenced",
        _SERVING,
        '        if group.lease.ended:\n            self.ledger["fenced"]',
        '        if group.lease.number < 0:\n            self.ledger["fenced"]',
        "Steps of a lease that has ended are taken.",
    ),
    Mutant(
        "duplicate_step_accepted",
        _SERVING,
        """        if sequence < group.sequence:
            self.ledger["duplicate"] += len(group.slots)
            raise WireError(
                f"{where}: expected sequence {group.sequence}, got {sequence}; a step was doubled"
            )
        if group.queued or group.dispatched:
            self.ledger["rejected"] += len(group.slots)
            raise WireError(f"{where}: expected to wait for actions, got a second step in flight")
        if sequence != group.sequence:
""",
        """        if group.queued or group.dispatched:
            self.ledger["rejected"] += len(group.slots)
            raise WireError(f"{where}: expected to wait for actions, got a second step in flight")
        if sequence > group.sequence:
""",
        "A step that has arrived before is taken once more.",
    ),
    Mutant(
        "lost_step_not_noticed",
        _SERVING,
        "        if sequence != group.sequence:\n",
        "        if sequence < group.sequence:\n",
        "A stream continues after one of its steps was lost.",
    ),
    Mutant(
        "first_not_checked",
        "learner/serving/core.py",
        "            if is_due[row]:\n",
        "            if False:\n",
        "A stream may begin in the middle of an episode.",
    ),
    Mutant(
        "cut_row_goes_on",
        "learner/serving/leases.py",
        "        group.streams[row] = self._streams(slot)\n",
        "",
        "A restarted environment's episode continues the stream before it.",
    ),
    Mutant(
        "queued_of_dead_lease_kept",
        _SERVING,
        'self.ledger["struck"] += queue.strike(lease)',
        'self.ledger["struck"] += queue.num_rows * 0',
        "What a dead env server had queued is still acted on.",
    ),
    Mutant(
        "positions_one_row_late",
        _SERVING,
        "positions = (rows_before % self.page_steps).astype(np.int32)",
        "positions = ((rows_before + 1) % self.page_steps).astype(np.int32)",
        "The first row of a stream is written as the second of its page.",
    ),
    Mutant(
        "lock_step_in_order_of_arrival",
        "learner/serving/batching.py",
        "        rows=_by_slot,\n",
        "        rows=_by_arrival,\n",
        "In lock step the rows of a batch lie as they arrived.",
    ),
    Mutant(
        "dispatched_slot_leased_again",
        _SLOTS,
        """            if group.dispatched:
                self._ending.append(group)
            else:
                self._free_group(group)
""",
        """            self._free_group(group)
""",
        "A slot is leased while a step of its last holder is being computed.",
    ),
    Mutant(
        "stream_keeps_its_name",
        _SLOTS,
        "return self.epochs[slots] * self.num_slots + slots",
        "return slots.astype(np.int64)",
        "The streams of a slot have one name under all leases.",
    ),
    Mutant(
        "rounds_are_not_aligned",
        "learner/serving/core.py",
        "        if queue.rule.is_aligned:\n",
        "        if queue.rule.is_complete:\n",
        "In rounds a stream that begins fills its pages later than the others.",
    ),
    Mutant(
        "rounds_act_before_they_publish",
        "learner/schedule.py",
        "            self._learning.finish_update()\n",
        "            pass\n",
        "A round begins with the parameters of the one before.",
    ),
    Mutant(
        "batch_waits_for_ever",
        "learner/serving/batching.py",
        "return max(0.0, self._queue[0].arrival + self.rule.deadline_seconds - now)",
        "return None",
        "A batch that is not full is never computed: SEED RL's bug.",
    ),
    Mutant(
        "actions_of_the_first_group",
        _HUB,
        "sequence, actions[rows]",
        "sequence, actions[batch.rows[0]]",
        "Every group of a batch gets the actions of the first.",
    ),
    Mutant(
        "actions_swapped_in_batch",
        _ACTOR,
        "actions = np.asarray(action)[: len(batch.slots)]",
        "actions = np.asarray(action)[: len(batch.slots)][::-1]",
        "Env servers get each other's actions.",
    ),
    Mutant(
        "page_taken_early",
        _ACTING,
        "full = np.flatnonzero(batch.positions == self._actor.page_steps - 1)",
        "full = np.flatnonzero(batch.positions == self._actor.page_steps - 2)",
        "A page is inserted before its last row is written.",
    ),
    Mutant(
        "evaluation_not_frozen",
        _ACTING,
        "versioned = self._params if is_training else self.evaluator.frozen",
        "versioned = self._params",
        "Evaluation acts with parameters that change meanwhile.",
    ),
)
