"""Bugs in serving: leases, fences, batches, and which actions go to whom."""

from tests.mutation.mutant import Mutant

_SERVING = "learner/serving/core.py"
_SLOTS = "learner/serving/leases.py"
_HUB = "learner/serving/hub.py"
_ACTING = "learner/acting/loop.py"
_ACTOR = "learner/acting/actor.py"

MUTANTS = (
    Mutant(
        "nobody_measures_unnoticed",
        _SLOTS,
        "return largest if for_roles and can_share and self._has_idle_role() else None",
        "return None",
        "When the env servers that measured have left, nothing is measured any more.",
        "evaluation roles stay with those present",
    ),
    Mutant(
        "ended_lease_not_fenced",
        _SERVING,
        '        if group.lease.ended:\n            self.ledger["fenced"]',
        '        if group.lease.number < 0:\n            self.ledger["fenced"]',
        "Steps of a lease that has ended are taken.",
        "a message of an old lease is fenced and counted (DESIGN 3.3)",
    ),
    Mutant(
        "duplicate_step_accepted",
        _SERVING,
        """        if sequence < group.sequence:
            self.ledger["duplicate"] += len(group.slots)
            raise ProtocolError(
                f"{where}: expected sequence {group.sequence}, got {sequence}; a step was doubled"
            )
        if group.queued or group.dispatched:
            self.ledger["rejected"] += len(group.slots)
            raise ProtocolError(
                f"{where}: expected to wait for actions, got a second step in flight"
            )
        if sequence != group.sequence:
""",
        """        if group.queued or group.dispatched:
            self.ledger["rejected"] += len(group.slots)
            raise ProtocolError(
                f"{where}: expected to wait for actions, got a second step in flight"
            )
        if sequence > group.sequence:
""",
        "A step that has arrived before is taken once more.",
        "a step is applied at most once (DESIGN 9.1)",
    ),
    Mutant(
        "lost_step_not_noticed",
        _SERVING,
        "        if sequence != group.sequence:\n",
        "        if sequence < group.sequence:\n",
        "A stream continues after one of its steps was lost.",
        "a step that is lost cuts the stream (DESIGN 9.1)",
    ),
    Mutant(
        "second_step_in_flight",
        _SERVING,
        "        if group.queued or group.dispatched:\n            self.ledger",
        "        if group.queued and group.dispatched:\n            self.ledger",
        "A group may send a step before it has the actions for the one before.",
        "one request in flight per group (DESIGN 5)",
    ),
    Mutant(
        "first_not_checked",
        "learner/serving/core.py",
        "            if is_due[row] or is_resumed:\n",
        "            if is_resumed:\n",
        "A stream may begin in the middle of an episode.",
        "the next occupant's first step is FIRST (DESIGN 4)",
    ),
    Mutant(
        "cut_row_goes_on",
        "learner/serving/leases.py",
        "        group.streams[row] = self._streams(slot)\n",
        "",
        "A restarted environment's episode continues the stream before it.",
        "nothing is bootstrapped across a cut (DESIGN 4)",
    ),
    Mutant(
        "queued_of_dead_lease_kept",
        _SERVING,
        'self.ledger["struck"] += lane.strike(lease)',
        'self.ledger["struck"] += lane.num_rows * 0',
        "What a dead env server had queued is still acted on.",
        "a slot is leased again after its queued rows are struck (DESIGN 5)",
    ),
    Mutant(
        "positions_one_row_late",
        _SERVING,
        "positions = (rows_before % self.page_steps).astype(np.int32)",
        "positions = ((rows_before + 1) % self.page_steps).astype(np.int32)",
        "The first row of a stream is written as the second of its page.",
        "a new lease starts a new page (DESIGN 5)",
    ),
    Mutant(
        "lock_step_in_order_of_arrival",
        "learner/serving/batching.py",
        "        rows=list,\n",
        "        rows=_by_arrival,\n",
        "In lock step the rows of a batch lie as they arrived.",
        "deterministic mode repeats bit for bit (DESIGN 9.4)",
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
        "a slot is leased again once its dispatched rows have returned (DESIGN 5)",
    ),
    Mutant(
        "page_of_old_lease_continued",
        _SLOTS,
        "        self.rows[slots] = 0\n",
        "",
        "A new lease continues the page of the one before.",
        "a new lease starts a new page (DESIGN 5)",
    ),
    Mutant(
        "reconnect_without_first",
        _SLOTS,
        "last_step_type = bytes([StepType.LAST]) * len(slots)",
        "last_step_type = self.acted_step_type[slots].tobytes()",
        "A new lease need not begin with FIRST.",
        "the next occupant's first step is FIRST (DESIGN 4)",
    ),
    Mutant(
        "stream_keeps_its_name",
        _SLOTS,
        "return self.epochs[slots] * self.num_slots + slots",
        "return slots.astype(np.int64)",
        "The streams of a slot have one name under all leases.",
        "a stream is cut when its env server disconnects (DESIGN 4)",
    ),
    Mutant(
        "seeds_repeat_after_reconnect",
        _SLOTS,
        'return _hash(f"{seed}/{slot}/{epoch}")',
        'return _hash(f"{seed}/{slot}")',
        "An env server that returns plays the same episodes again.",
        "a reconnect must not replay the same episodes (DESIGN 5)",
    ),
    Mutant(
        "env_server_without_evaluation",
        _SLOTS,
        "least = int(offered > 1 or (trains and not evaluates))",
        "least = 0",
        "Nothing is measured before there are more environments than training takes.",
        "training slots first, and evaluation what was configured (DESIGN 5)",
    ),
    Mutant(
        "group_in_one_lane_after_the_other",
        _SLOTS,
        "lane = max(own, key=lambda lane: free[lane] - dealt[lane])",
        "lane = next(lane for lane in own if free[lane] > dealt[lane])",
        "The first inference device acts for all, and the others' shards stay empty.",
        "slots are dealt to lanes alike (HOUSE, seams)",
    ),
    Mutant(
        "batch_of_another_device",
        "learner/serving/core.py",
        "if lane.device == device and lane.role in roles",
        "if lane.role in roles",
        "A device acts on slots whose carry is another's.",
        "a slot's carry never moves (HOUSE, seams)",
    ),
    Mutant(
        "lock_step_does_not_wait",
        "learner/serving/batching.py",
        "target_rows=lambda _, num_slots, __: max(1, num_slots)",
        "target_rows=lambda num_live, _, __: max(1, num_live)",
        "In lock step a batch is due without an env server that has left.",
        "deterministic mode repeats bit for bit (DESIGN 9.4)",
    ),
    Mutant(
        "rounds_are_not_aligned",
        "learner/serving/core.py",
        "        if lane.rule.is_aligned:\n",
        "        if lane.rule.is_complete:\n",
        "In rounds a stream that begins fills its pages later than the others.",
        "in rounds every row was acted with the version that its round began with",
    ),
    Mutant(
        "rounds_lose_count_of_rows",
        "learner/serving/core.py",
        'self.ledger["discarded"] += int(positions.sum())',
        'self.ledger["discarded"] += int(positions.max())',
        "Rows of pages that a round begins anew are in no account.",
        "every row is in exactly one account (DESIGN 5)",
    ),
    Mutant(
        "rounds_act_before_they_publish",
        "learner/schedule.py",
        """        while self._learning.run_once():
            # At once, so that the next round is acted with what was learned.
            self._learning.finish_update()
""",
        "        self._learning.run_once()\n",
        "A round begins with the parameters of the one before.",
        "in rounds every row was acted with the version that its round began with",
    ),
    Mutant(
        "batch_waits_for_ever",
        "learner/serving/batching.py",
        "return max(0.0, self._queue[0].arrival + self.rule.deadline_seconds - now)",
        "return None",
        "A batch that is not full is never computed: SEED RL's bug.",
        "the batcher flushes on size or deadline (DESIGN 5)",
    ),
    Mutant(
        "first_step_wakes_nobody",
        "learner/serving/batching.py",
        "return len(self._queue) == 1 or self.num_rows >= self.target_rows",
        "return self.num_rows >= self.target_rows",
        "Who waits for a batch does not hear of the step whose deadline it has to keep.",
        "the batcher flushes on size or deadline (DESIGN 5)",
    ),
    Mutant(
        "actions_of_the_first_group",
        _HUB,
        "sequence, actions[rows]",
        "sequence, actions[batch.rows[0]]",
        "Every group of a batch gets the actions of the first.",
        "no row is swapped (DESIGN 9.2)",
    ),
    Mutant(
        "cut_not_reported",
        _SLOTS,
        "                self.cut.extend(group.streams.tolist())\n",
        "                self.cut.extend([])\n",
        "Nobody reports to the replay that streams have ended.",
        "nothing grows (DESIGN 9.5)",
    ),
    Mutant(
        "actions_swapped_in_batch",
        _ACTOR,
        "np.asarray(action)[: len(batch.slots)], timestep",
        "np.asarray(action)[: len(batch.slots)][::-1], timestep",
        "Env servers get each other's actions.",
        "no row is swapped (DESIGN 9.2)",
    ),
    Mutant(
        "pages_named_by_slot",
        _ACTING,
        "streams, versions = batch.streams[full].tolist(), self._versions",
        "streams, versions = slots.tolist(), self._versions",
        "Pages of a slot are one stream over all its leases.",
        "nothing is learned across a cut (DESIGN 4)",
    ),
    Mutant(
        "page_taken_early",
        _ACTING,
        "full = np.flatnonzero(batch.positions == self._actor.page_steps - 1)",
        "full = np.flatnonzero(batch.positions == self._actor.page_steps - 2)",
        "A page is inserted before its last row is written.",
        "a sequence is consecutive steps of one stream (DESIGN 6, 9.2)",
    ),
    Mutant(
        "version_of_the_learner_stored",
        _ACTING,
        "actions, timestep = self._actor.act(batch, frozen)",
        "newest = self._exchange.learned_version\n"
        "        actions, timestep = self._actor.act(batch, frozen._replace(version=newest))",
        "Rows carry the learner's version instead of the one that acted.",
        "policy lag is measured (DESIGN 7)",
    ),
    Mutant(
        "first_rows_counted_as_steps",
        _ACTING,
        "steps = int(np.count_nonzero(step_type != _FIRST))",
        "steps = len(step_type)",
        "LAST to FIRST counts as an environment step.",
        "LAST to FIRST rows are not steps (DESIGN 7)",
    ),
    Mutant(
        "evaluation_not_frozen",
        _ACTING,
        "frozen = self._params if is_training else self.evaluator.frozen",
        "frozen = self._params",
        "Evaluation acts with parameters that change meanwhile.",
        "a round's episodes are of frozen parameters (DESIGN 8)",
    ),
    Mutant(
        "link_outlives_connection",
        "learner/serving/connection.py",
        """        self.outbox.put(error)
        if self.link is not None:
            self.link.end()
""",
        "        self.outbox.put(error)\n",
        "A link stays open, with its slots, when the connection of its lease is gone.",
        "a stream is a lease on slots: its end frees them (DESIGN 3.3)",
    ),
    Mutant(
        "keys_repeat_in_the_next_learner",
        _SLOTS,
        "self._new_key() or 1",
        "self.seed << 32 | self._num_leases",
        "Env servers that outlive a learner name leases that the next one has given to others.",
        "an env server has no identity beyond its connection (DESIGN 3.3)",
    ),
    Mutant(
        "false_report_is_believed",
        "learner/serving/ledger.py",
        "        if sent.steps < group.seen:\n",
        "        if sent.steps < 0:\n",
        "An env server may report that it sent less than arrived, and the ledger has a residue.",
        "a peer ends its own connection at most (DESIGN 3.3)",
    ),
    Mutant(
        "number_of_a_step_is_believed",
        _SERVING,
        """        if sequence != group.seen:
            return
        group.seen += 1
""",
        """        if sequence < group.seen:
            return
        group.seen = sequence + 1
""",
        "An env server decides how many of its steps were seen.",
        "a peer ends its own connection at most (DESIGN 3.3)",
    ),
    Mutant(
        "link_outlives_stream_at_env_server",
        "seedrl/wire/learner_connection.py",
        "        if not self._call.add_callback(self._link.end):\n",
        "        if not self._call.add_callback(lambda: None):\n",
        "An env server waits for ever at the link of a learner that stands still.",
        "whatever blocks has a deadline (DESIGN 9.6)",
    ),
    Mutant(
        "link_loses_what_came_together",
        "seedrl/wire/local_link.py",
        "        self._unread = data[start:]\n",
        '        self._unread = b""\n',
        "The beginning of a message's length is lost if it arrives with the message before.",
        "no step is lost on its way (DESIGN 9.1)",
    ),
)
