"""The acting thread's work: batches in, actions out, full pages on to learning."""

import collections
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from learner.acting.actor import Actor
from learner.acting.evaluator import Episode, Evaluator, Score
from learner.learning.loop import Learning
from learner.report.metrics import Metrics
from learner.report.stages import Laps
from learner.report.status import EvaluationStatus
from learner.runtime.channel import ActorLearnerChannel, FilledPages, VersionedParams
from learner.runtime.worker import ClosedError
from learner.serving.batching import Pending
from learner.serving.core import Batch
from learner.serving.hub import Hub
from learner.serving.leases import Role
from seedrl.timing import POLL_SECONDS
from seedrl.types import StepType, TimeStep

_FIRST, _LAST = StepType.FIRST.value, StepType.LAST.value
# A round's line lists no more: readers skip one of a megabyte (`json_lines.LONGEST_LINE_BYTES`).
_MOST_RETURNS = 10_000


class Totals:
    """Counts of all acting threads together: each adds to its own, any thread reads.

    With several hosts, learning adds the steps of the others.
    """

    # Lists, one entry for each inference device: so no batch waits for a lock.

    def __init__(
        self, total_steps: float = math.inf, *, earlier_steps: int = 0, num_devices: int = 1
    ):
        """`earlier_steps`: those of earlier sessions."""
        self.total_steps = total_steps  # after which the run ends
        # Environment steps of training slots in the whole run: those of earlier sessions are with
        # the first device, those of other hosts, if there are any, come last.
        self.steps = [earlier_steps] + [0] * (num_devices - 1)
        # Rows of full pages that were not sent, because the run was ending.
        self.abandoned_rows = [0] * num_devices

    @property
    def training_steps(self) -> int:
        """Of all inference devices."""
        return sum(self.steps)


class EpisodeTracker:
    """Sums rewards per slot from FIRST to LAST. The acting thread's; others read `lengths`."""

    def __init__(self, num_slots: int):
        # [S], of the episodes under way; of one that has ended until the next starts.
        self.returns = np.zeros(num_slots, np.float64)  # float32 loses small rewards of long ones
        self.lengths = np.zeros(num_slots, np.int64)  # in agent steps
        self.questions = np.full(num_slots, -1, np.int64)  # see `Episode`

    def observe(self, slots: np.ndarray, step_type: np.ndarray, reward: np.ndarray) -> list[int]:
        """Takes rows `[B]` of distinct slots; returns the slots whose episode ends in them."""
        is_first = step_type == _FIRST
        # FIRST also drops what a cut stream left behind.
        self.returns[slots] = np.where(is_first, 0.0, self.returns[slots] + reward)
        self.lengths[slots] = np.where(is_first, 0, self.lengths[slots] + 1)
        ended: list[int] = slots[step_type == _LAST].tolist()
        return ended

    def begin(self, slot: int) -> None:
        """Starts the slot's next episode, as FIRST does."""
        self.returns[slot] = self.lengths[slot] = 0

    def episode(self, slot: int, metrics: tuple[float, ...] = ()) -> Episode:
        """The episode of a slot as it is by now."""
        question = int(self.questions[slot])
        return Episode(float(self.returns[slot]), int(self.lengths[slot]), metrics, question)


def metrics_by_slot(batch: Batch) -> dict[int, tuple[float, ...]]:
    """`environment.metrics` of the episodes that end in a batch; empty if none are configured."""
    return {
        slot: tuple(row.tolist())
        for item in batch.pending
        for slot, row in zip(
            item.group.slots[item.timestep.step_type >= _LAST].tolist(), item.metrics, strict=False
        )
    }


def seconds_owed(steps: Iterable[Pending]) -> tuple[list[float], list[float]]:
    """Time that env servers took for one environment, of each of these steps in order of arrival.

    Each from its actions, or from the arrival of the step before it, to its own arrival: an env
    server steps one group after another. The time includes the ways there and back. The second
    result has only steps whose actions were sent no later than those of the step before: their time
    does not include them.
    """
    each: list[float] = []
    own: list[float] = []
    for item in steps:
        lease, answered = item.group.lease, item.group.answered_seconds
        seconds = max(0.0, item.arrival - max(answered, lease.last_arrival))
        each.append(seconds / len(item.group.slots))
        if answered <= lease.last_answered:
            own.append(each[-1])
        lease.last_arrival = max(item.arrival, lease.last_arrival)
        lease.last_answered = answered
    return each, own


class Acting:
    """Brings batches to the actor, and actions, pages and numbers on. Owned by its thread.

    There is one for each inference device, with a thread of its own if the schedule is
    asynchronous: it waits for its device, and the others must not. `run_once` is the body of the
    thread's loop; it waits for `poll_seconds` at most. Tests pass 0, and decide when time passes.
    """

    def __init__(
        self,
        *,
        hub: Hub,
        actor: Actor,
        channel: ActorLearnerChannel,
        evaluator: Evaluator,
        metrics: Metrics,
        totals: Totals | None = None,
        frames_per_step: int = 1,
        poll_seconds: float = 0.2,
    ):
        self._hub = hub
        self._actor = actor
        self._channel = channel
        self._clock = channel.clock
        # The main thread reads the public attributes: they are rebound, or deques.
        self.evaluator = evaluator
        self._metrics = metrics
        self._tally = metrics.tally()
        # The mean of all inference devices.
        self.laps = Laps(self._tally, channel.clock, num_threads=len(channel.params))
        self._frames_per_step = frames_per_step
        self._poll_seconds = poll_seconds
        self._device = actor.device
        self._episodes = EpisodeTracker(actor.end_slot)
        # Of the first row of the open page of each slot.
        self._versions = np.zeros(actor.end_slot, np.int64)
        self._next_poll = 0.0
        self.totals = totals or Totals()  # of all inference devices
        self.best_score: Score | None = None  # of this session, the first of equal ones
        # Rounds of evaluation that have ended; the main thread takes them out.
        self.rounds: collections.deque[EvaluationStatus] = collections.deque()

    @property
    def training_steps(self) -> int:
        """See `Totals`."""
        return self.totals.training_steps

    @property
    def _params(self) -> VersionedParams:
        # The newest on its device. Learning rebinds the list, so one look gives one version.
        return self._channel.params[self._device]

    @property
    def state_bytes(self) -> int:
        """Bytes on its device that it keeps of its slots."""
        return self._actor.state_bytes

    def warm_up_largest(self) -> None:
        """Compiles what acting needs to start; see `Actor`."""
        self._actor.warm_up_largest(self._params)

    def compile_others(self) -> None:
        """Compiles the rest, on any thread; see `Actor`."""
        self._actor.compile_others(self._params)

    def run_once(self) -> None:
        """Acts on the next batch, if one is due soon."""
        now = self.laps.start()
        if now >= self._next_poll:
            self._next_poll = now + self._poll_seconds
            self._poll(now)
        # Not one step more, however long it takes the main thread to notice the end of the run.
        is_complete = sum(self.totals.steps) >= self.totals.total_steps
        is_training_allowed = not is_complete and self._channel.limiter.may_act()
        roles: list[Role] = ["training"] if is_training_allowed else []
        roles += ["evaluation"] if self.evaluator.is_running else []
        self.laps.lap("acting_other")
        batch = self._hub.next_batch(roles, self._poll_seconds, self._device)
        if not is_training_allowed and not is_complete:
            self.laps.lap("acting_waits")
        elif batch is None:
            self.laps.lap("acting_environment")
        else:
            # From its first step on, it waited for others.
            self.laps.lap("acting_environment", batch.oldest_arrival)
            self.laps.lap("acting_batch")
        if batch is not None:
            self._act(batch)

    def _poll(self, now: float) -> None:
        self._hub.rebalance()
        last = self._channel.last
        latest = last[self._device] if last else self._params
        live = self._hub.live_slots("evaluation", self._device)
        self.evaluator.poll(now, latest, live, is_last=bool(last))
        if ended := self._hub.take_ended(self._device):
            self._end_streams(ended)

    def _end_streams(self, ended: Sequence[int]) -> None:
        # In the queue of the pages: replay gets all pages of a stream before its end.
        self._send(FilledPages((), (), (), ended, ()))

    def _act(self, batch: Batch) -> None:
        is_training = batch.role == "training"
        versioned = self._params if is_training else self.evaluator.frozen
        measured = self._tally.measured
        if is_training:
            # Of each step, not of a batch: a mean of means would count those of small batches for
            # more, and with them slow env servers.
            each, own = seconds_owed(batch.pending)
            measured["env_step_ms"].extend(1e3 * seconds for seconds in each)
            measured["env_own_step_ms"].extend(1e3 * seconds for seconds in own)
            self._tally.counted["late_batches"] += batch.is_late
        start = self.laps.lap("acting_other")
        staged = self._actor.stage(batch)
        self.laps.lap("acting_transfer")
        actions = self._actor.act(batch, staged, versioned, self.training_steps)
        self.laps.lap("acting_act")
        self._hub.answer(batch, actions, () if is_training else self.evaluator.resets(batch))
        # From here on env servers step again: the rest costs them nothing.
        end = self.laps.lap("acting_wire")
        measured["queue_wait_ms"].append(1e3 * (start - batch.oldest_arrival))
        measured["inference_ms"].append(1e3 * (end - start))
        measured["reply_ms"].append(1e3 * (end - batch.oldest_arrival))
        full = np.flatnonzero(batch.positions == self._actor.page_steps - 1)
        timestep = staged.rows.timestep
        self._account(batch, timestep, num_pages=len(full))
        if is_training:
            measured["batch_fill"].append(len(batch.slots) / len(timestep.step_type))
            lag = self._channel.learned_version - versioned.version
            measured["serving_lag_updates"].append(lag)
            # A page is as old as its first row: by that a queue drops what is too old.
            self._versions[batch.slots[batch.positions == 0]] = versioned.version
            self._take_pages(batch, full)
        self.laps.lap("acting_other")

    def _account(self, batch: Batch, timestep: TimeStep, num_pages: int) -> None:
        num_rows = len(batch.slots)
        step_type = timestep.step_type[:num_rows]
        ended = self._episodes.observe(batch.slots, step_type, timestep.reward[:num_rows])
        metrics = self._metrics_of(batch) if self._hub.environment.metrics else {}
        episodes = {slot: self._episodes.episode(slot, metrics.get(slot, ())) for slot in ended}
        for episode in episodes.values():
            self._tally.counted[f"episodes/{batch.role}"] += 1
            if batch.role == "training":  # a round of evaluation is a line of its own
                self._tally.measured["return/training"].append(episode.episode_return)
                self._tally.measured["length/training"].append(episode.length)
        # LAST -> FIRST rows are not environment steps: nothing was done in them.
        steps = int(np.count_nonzero(step_type != _FIRST))
        if batch.role == "evaluation":
            self._tally.counted["evaluation_steps"] += steps
            result = self.evaluator.observe(
                self._clock(), batch.slots, batch.streams, step_type, episodes
            )
            if result is not None:
                self._report(*result)
            return
        # Before the limiter counts them: a thread that it wakes finds them in the totals.
        self.totals.steps[self._device] += steps
        self._channel.limiter.acted(steps, num_pages)
        self._tally.counted["env_steps"] += steps
        self._tally.counted["frames"] += steps * self._frames_per_step

    def _metrics_of(self, batch: Batch) -> dict[int, tuple[float, ...]]:
        found = metrics_by_slot(batch)
        for row in found.values() if batch.role == "training" else ():
            for name, value in zip(self._hub.environment.metrics, row, strict=True):
                if not math.isnan(value):
                    self._tally.measured[f"episode/{name}"].append(value)
        return found

    def _report(self, score: Score, was_confirming: bool) -> None:
        if self.best_score is None or score.mean > self.best_score.mean:
            self.best_score = score
        played = EvaluationStatus(
            mean_return=score.mean,
            episodes=len(score.episodes),
            env_steps=score.frozen.env_steps,
            ended_env_steps=self.training_steps,
            updates=score.frozen.version,
            is_confirmation=was_confirming,
        )
        self.rounds.append(played)
        metrics = score.mean_metrics(self._hub.environment.metrics) | score.pass_at_k()
        deviation, length = float(np.std(score.returns)), score.mean_length
        fields = {**vars(played), "standard_deviation": deviation, "mean_length": length}
        if len(score.episodes) <= _MOST_RETURNS:
            # In the order of held-out questions, which are the same in each round.
            episodes = sorted(score.episodes, key=lambda each: each.question)
            fields["returns"] = [round(each.episode_return, 6) for each in episodes]
        self._metrics.record("evaluation", **fields, metrics=metrics)
        # In charts at the same step, which the interval's numbers have behind them.
        points = {"return/evaluation": score.mean, "length/evaluation": length}
        points |= {f"episode/{name}/evaluation": value for name, value in metrics.items()}
        self._metrics.point(played.env_steps, points)

    def follow(self, learning: Learning) -> None:
        """Takes what learning starts from; before the threads start. Here nothing."""

    def accounts(self, *, at_rest: bool) -> dict[str, int]:
        """Accounts of the ledger that this side alone has: here none."""
        del at_rest
        return {}

    def take_sample(self) -> dict[str, Any] | None:
        """The newest experience as the dashboard shows it, once; for any thread. Here none."""
        return None

    def unended_steps(self, role: Role) -> int:
        """Steps of the shortest episode under way in live slots of this role; for any thread."""
        lengths = self._episodes.lengths[self._hub.live_slots(role, self._device)]
        return int(lengths.min()) if lengths.size else 0

    def _take_pages(self, batch: Batch, full: np.ndarray) -> None:
        if not full.size:
            return
        slots = batch.slots[full]
        pages = self._actor.take_pages(slots)
        streams, versions = batch.streams[full].tolist(), self._versions[slots].tolist()
        self._send(FilledPages(pages, streams, slots.tolist(), (), versions))

    def _send(self, item: FilledPages) -> None:
        # Waits while learning is busy and the queue is full: that bounds what is in flight. The
        # end of a run sets `is_closed`, which is seen here within POLL_SECONDS.
        self.laps.lap("acting_other")
        is_sent = False
        while not is_sent:
            if self._channel.is_closed:
                rows = len(item.streams) * self._actor.page_steps
                self.totals.abandoned_rows[self._device] += rows
                raise ClosedError
            is_sent = self._channel.pages.put(item, timeout=POLL_SECONDS)
            self.laps.lap("acting_waits")
