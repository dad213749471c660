"""The learning thread's work: pages into replay, updates out of it, parameters on to acting."""

import math
import queue
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import jax
import numpy as np

from learner.learning.device_mapping import MappedPrograms, shapes_of
from learner.learning.learn_step import LearnerState, Numbers
from learner.learning.page_routing import (
    ShardedReplay,
    compile_insertion,
    insert_parcels,
    plan_parcels,
)
from learner.report.metrics import Metrics
from learner.report.stages import Laps
from learner.runtime.channel import ActorLearnerChannel, FilledPages, VersionedParams
from seedrl.replay.buffer import ReplayState
from seedrl.replay.experience import Index
from seedrl.timing import POLL_SECONDS
from seedrl.types import Page, Tree


class Snapshot(NamedTuple):
    """A run's state for a checkpoint, on the host: a copy that no thread changes any more."""

    state: LearnerState  # numpy leaves
    indices: list[dict[str, object]]  # the replay's page indices, one per shard, as plain values
    replay: ReplayState | tuple[()]  # numpy leaves; () if the replay is not saved
    # Taken together with the arrays: read later, the counts would be too high.
    env_steps: int  # training environment steps of the run
    limiter: Mapping[str, float]  # see `Limiter.counts`
    confirmed: VersionedParams | None = None  # saved in place of the parameters of `state`


class Learning:
    """Owns the learner state and the replay on the devices. `run_once` is the thread's loop body.

    Insertion and update consume those arrays and give new ones: the thread holds the only
    references.
    Others read counters and request snapshots. With `poll_seconds` 0 it never waits for acting.
    """

    def __init__(
        self,
        *,
        programs: MappedPrograms,
        state: LearnerState,
        replay: ShardedReplay,
        channel: ActorLearnerChannel,
        metrics: Metrics,
        publish_every_updates: int,
        lag_updates: int = 0,
        poll_seconds: float = POLL_SECONDS,
    ):
        self._programs = programs
        self._state = state
        # On the devices: every insertion and update consumes it.
        self._memory = replay.memory
        # The host's part: page indices and what does not change.
        self._replay = replay._replace(memory=())
        self._example_draw = _stacked([replay.experience.example_draw] * len(replay.indices))
        self.abandoned_rows = 0  # that replay had no room for when the session ended
        self.num_stale = 0  # pages that were dropped when they arrived, see `Experience.stale`
        self._restored_pages = sum(index.num_inserted for index in replay.indices)
        self._channel = channel
        self._limiter = channel.limiter
        self._tally = metrics.tally()
        self.laps = Laps(self._tally, channel.clock)
        # Training environment steps of the run: of several hosts the same on all at each update.
        self.count_steps = channel.count_steps
        self._publish_every = publish_every_updates
        # The newest last; acting uses the first, the others wait for `lag_updates`.
        self._lagging = deque([channel.params], maxlen=1 + lag_updates // publish_every_updates)
        self._poll_seconds = poll_seconds
        # Of an update that may still be computed: its metrics, and a copy of the parameters after
        # it if they are to be published.
        self._in_flight: tuple[Numbers, Sequence[Sequence[Tree]]] | None = None
        # Shapes only: while a thread compiles for them, this one consumes the arrays.
        self._shapes = shapes_of((state, replay.memory))
        # Of snapshots, by the main thread: with the replay or not, and the answer.
        self._requests: queue.SimpleQueue[tuple[bool, Future[Snapshot]]] = queue.SimpleQueue()
        self.num_applied = self.num_skipped = 0  # updates of this session, finite and not
        # The device's own counter, mirrored: reading it back would wait for the update. It counts
        # one that is being computed, unlike `updates`.
        self._newest = self._first = int(np.asarray(jax.device_get(state.updates)))
        # A restored replay may be learned from at once, so what is acted first counts already.
        self._is_ready = self._limiter.holds(self.sequences_of_shards())
        # What a limiter counts from acting on, a restored sequence has behind it.
        self._limiter.acted(0, pages=self.num_sequences)

    @property
    def updates(self) -> int:
        """Applied updates of the run, without one that is being computed: it may be skipped."""
        return self._first + self.num_applied

    @property
    def stored_rows(self) -> int:
        """Rows that were inserted into replay since this object was made."""
        pages = sum(index.num_inserted for index in self._replay.indices)
        return (pages - self._restored_pages) * self._replay.page_steps

    @property
    def stale_rows(self) -> int:
        """Rows of pages that were too old to be taken in."""
        return self.num_stale * self._replay.page_steps

    def accounts(self) -> dict[str, int]:
        """Rows of stored pages by what has become of them, where the replay counts that."""
        return self._replay.rows_by_account()

    @property
    def indices(self) -> Sequence[Index]:
        """The page index of each shard. For the owning thread, or after it has ended."""
        return self._replay.indices

    @property
    def num_sequences(self) -> int:
        """Sequences that can be sampled now."""
        return sum(index.num_sequences for index in self._replay.indices)

    @property
    def replay_fill(self) -> float:
        """Share of the replay that holds experience: the mean of the shards."""
        return sum(index.fill for index in self._replay.indices) / len(self._replay.indices)

    def sequences_of_shards(self, steps_to_insert: int = 0) -> list[int]:
        """Sequences that each shard holds, once its part of that many more steps is inserted."""
        pages = steps_to_insert // (self._replay.page_steps * len(self._replay.indices))
        more = pages * self._replay.starts_in_page
        return [index.num_sequences + more for index in self._replay.indices]

    def compile_insertion(self, page: Page) -> None:
        """Compiles insertion of such pages (shapes and dtypes), on any thread; runs nothing."""
        compile_insertion(self._programs, self._shapes[1], self._replay, page)

    def trace_update(self) -> None:
        """The first part of `compile_update`. Raises ConfigError for a mistake in the agent."""
        self._programs.trace(*self._shapes, self._example_draw, np.float32(0))

    def compile_update(self) -> Any:
        """Compiles the update without running it, on any thread; returns what is compiled."""
        lowered = self._programs.lower(*self._shapes, self._example_draw, np.float32(0))
        return lowered.compile()

    def run_once(self) -> bool:
        """Inserts what has arrived, then learns once if an update is owed; True if it did."""
        is_ready = self.run_without_update()
        # If replay is not ready nothing is owed, so do not wait; other hosts wait for this vote.
        is_owed = self._limiter.wait_to_learn(self._poll_seconds if is_ready else 0.0)
        self.laps.lap("learning_waits")
        if is_owed:
            self._learn()
        return is_owed

    def run_without_update(self) -> bool:
        """Does all that comes before an update; True if replay can be sampled."""
        self.laps.start()
        self.insert_pages(0.0 if self._is_ready else self._poll_seconds)
        # Not ready, most of it was a wait for pages.
        self.laps.lap("learning_insert" if self._is_ready else "learning_waits")
        # At most one update in flight: a queue of them would keep acting from the device.
        self.finish_update()
        self._is_ready = self._limiter.holds(self.sequences_of_shards())
        self.answer_requests()
        self.laps.lap("learning_other")
        return self._is_ready

    def insert_pages(self, timeout: float = 0.0) -> None:
        """Puts into replay what acting has sent. For the owning thread, or after it has ended."""
        # Not more than wait now: acting could keep sending.
        pages = self._channel.pages
        for _ in range(len(pages) or int(timeout > 0)):
            # Without room they stay in the queue, and acting waits once that is full.
            if not all(index.has_room(self._replay.most_pages) for index in self._replay.indices):
                return
            if (item := pages.get(timeout)) is not None:
                self._insert(item)

    def abandon_pages(self) -> None:
        """Counts what was not inserted. After both threads have ended."""
        while (item := self._channel.pages.get()) is not None:
            self.abandoned_rows += len(item.streams) * self._replay.page_steps

    def _insert(self, item: FilledPages) -> None:
        if item.streams:
            rows = jax.tree.leaves(item.pages)[0].shape[0]
            stale = self._replay.experience.stale(item.versions, self._newest, self.num_sequences)
            # Until the insertion the index is ahead of the memory; only this thread uses them.
            planned = plan_parcels(self._replay, item.streams, item.slots, rows, stale)
            self._memory = insert_parcels(self._programs, self._memory, item.pages, planned)
            if stale:
                self._drop(len(stale))
        # After the pages, which may be of the stream that ends.
        for stream in item.ended:
            for index in self._replay.indices:
                index.end_stream(stream)

    def _drop(self, num_pages: int) -> None:
        self.num_stale += num_pages
        self._tally.counted["stale_sequences"] += num_pages
        # Else acting would wait for updates that these pages will never be part of.
        self._limiter.dropped(num_pages)
        self._channel.wake_acting()

    def _learn(self) -> None:
        # Of a queue the host knows what waits; with priorities the device draws, and this is `()`.
        draw = _stacked([index.draw() for index in self._replay.indices])
        self.laps.lap("learning_sample")
        self._newest += 1  # as if it were applied; `_observe` takes it back if not
        self._channel.learned_version = self._newest
        # Also for an update that is skipped, else acting would wait for it for ever. Before the
        # call, which on a CPU lasts as long as the update.
        self._limiter.took()
        self._channel.wake_acting()
        self._state, self._memory, numbers = self._programs.learn(
            self._state, self._memory, draw, np.float32(self.count_steps())
        )
        self.laps.lap("learning_learn")
        # Asked for now, while the update is computed, the copy costs no time between two updates.
        is_published = self._newest % self._publish_every == 0
        self._in_flight = numbers, [self._published()] if is_published else []
        self.laps.lap("learning_publish")

    def _published(self) -> Sequence[Tree]:
        return self._programs.publish(jax.tree.map(self._programs.local_part, self._state.params))

    def finish_update(self) -> None:
        """Waits for the update under way, if there is one, and publishes its parameters."""
        # Not earlier: acting with parameters that are still being computed would wait for them.
        if self._in_flight is None:
            return
        (numbers, copies), self._in_flight = self._in_flight, None
        is_applied = self._observe(fetched(numbers))
        self.laps.lap("learning_learn")
        self._channel.learned_version = self._newest
        # The parameters of a skipped update are those of the update before.
        if is_applied:
            for params in copies:
                self._lagging.append(self._versioned(params))
                self._channel.params = self._lagging[0]
                self._channel.on_published()

    def _versioned(self, params: Sequence[Tree]) -> Sequence[VersionedParams]:
        steps = self._channel.count_steps()
        return [VersionedParams(own, self._newest, steps) for own in params]

    def settle(self) -> None:
        """All that is left to do once all steps are taken: hands the last parameters to acting."""
        self.insert_pages(self._poll_seconds)
        self.finish_update()
        if not self._channel.last:
            is_published = self._channel.params[0].version == self._newest
            last = self._channel.params if is_published else self._versioned(self._published())
            self._channel.last = last
        self.answer_requests()

    def _observe(self, numbers: Mapping[str, float]) -> bool:
        """Counts an update that has ended. True if it was applied."""
        skipped = int(numbers["skipped_updates"])
        self._tally.counted["skipped_updates"] += skipped
        self._tally.counted["updates"] += 1 - skipped
        if skipped:
            # The device does not count it; versions must be the device's. Its numbers are left out:
            # one that is not finite would hide all others of the interval.
            self._newest -= 1
            self.num_skipped += 1
            return False
        self.num_applied += 1
        self._limiter.applied()
        for name, number in numbers.items():
            if name != "skipped_updates" and not math.isnan(number):  # else it was not measured
                self._tally.measured[name].append(number)
        return True

    def request_snapshot(self, *, with_replay: bool) -> Future[Snapshot]:
        """Asks the thread that owns this object for a snapshot; it never comes if that ends."""
        answer = Future[Snapshot]()
        self._requests.put((with_replay, answer))
        return answer

    def answer_requests(self) -> None:
        """Takes the snapshots that are requested. For the owning thread, between two updates."""
        while not self._requests.empty():  # no other thread takes from it
            with_replay, answer = self._requests.get()
            if answer.set_running_or_notify_cancel():
                answer.set_result(self.snapshot(with_replay=with_replay))

    def snapshot(self, *, with_replay: bool) -> Snapshot:
        """The state as it is now. For the owning thread, or after that has ended."""
        state = jax.tree.map(lambda leaf: _host_copy(leaf.addressable_data(0)), self._state)
        replay = jax.tree.map(_host_copy, self._memory) if with_replay else ()
        return Snapshot(
            state,
            [index.state() for index in self._replay.indices],
            replay,
            env_steps=self.count_steps(),
            limiter=dict(self._limiter.now.counts()),
        )


def _host_copy(leaf: jax.Array) -> np.ndarray:
    # On a CPU `np.asarray` may be a view of the device's buffer, which the next update consumes
    # while the saver reads. Elsewhere it is a copy already, and replay is large.
    host = np.asarray(leaf)
    return host if host.flags.owndata else host.copy()


def _stacked(trees: Sequence[Tree]) -> Tree:
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


def fetched(numbers: Numbers) -> dict[str, float]:
    """The numbers on the host; waits for them."""
    values, names = numbers
    return dict(zip(names, np.asarray(values).tolist(), strict=True))
