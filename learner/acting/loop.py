"""The acting thread's work: batches in, actions out, full pages on to learning."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from learner.acting.act_step import ActingState, ActPrograms
from learner.acting.batch_shapes import BatchLadder
from learner.acting.episodes import EpisodeTracker
from learner.acting.evaluator import Evaluator, FrozenParams, Score
from learner.reporting.metrics import Metrics, Role
from learner.serving.core import Batch
from learner.serving.hub import Hub
from learner.threads.channel import Channel, ClosedError, Mailbox
from learner.threads.rate_limiter import RateLimiter
from learner.threads.snapshot_requests import ActingSnapshot
from seedrl.types import Page, StepType, TimeStep


class FilledPages(NamedTuple):
    """Pages on their way to replay.

    Attributes:
      pages: leaves `[I, ...]` on the acting device; rows beyond `len(streams)` are padding.
      streams: the stream of each page, in order.
      slots: the slot of each page.
      ended: streams that were cut; nothing more comes from them.
    """

    pages: Page | tuple[()]
    streams: Sequence[int]
    slots: Sequence[int]
    ended: Sequence[int]


class Acted(NamedTuple):
    """A batch and the `actions [B] int32` that answered it."""

    batch: Batch
    actions: np.ndarray


class Acting:
    """Owns the acting state on the device. `run_once` is the body of the acting thread's loop.

    With `poll_seconds` 0 it never waits: then whoever calls it decides when time passes.
    """

    def __init__(
        self,
        *,
        hub: Hub,
        programs: ActPrograms,
        state: ActingState,
        ladder: BatchLadder,
        params: Mailbox[FrozenParams],
        learned_version: Mailbox[int],
        evaluator: Evaluator,
        limiter: RateLimiter,
        pages: Channel[FilledPages],
        metrics: Metrics,
        page_steps: int,
        frames_per_step: int,
        training_steps: int = 0,
        total_steps: float = math.inf,
        poll_seconds: float = 0.2,
    ):
        self._hub = hub
        self._clock = hub.clock
        self._poll_seconds = poll_seconds
        self._programs = programs
        self._state = state
        self._ladder = ladder
        self._params = params
        self._learned_version = learned_version
        self._evaluator = evaluator
        self._limiter = limiter
        self._pages = pages
        self._metrics = metrics
        self._page_steps = page_steps
        self._frames_per_step = frames_per_step
        self._episodes = EpisodeTracker(ladder.padding_slot)
        self._next_poll = 0.0
        self.training_steps = training_steps
        self._total_steps = total_steps
        self.abandoned_rows = 0
        self.last_score: Score | None = None

    def warm_up(self) -> None:
        """Compiles every batch shape, by acting on padding only."""
        params, version = self._params.get()
        for rows in self._ladder.act_rows:
            self._state, action = self._programs.act(
                self._state,
                params,
                np.int32(version),
                np.uint32(0),
                *self._ladder.padding_batch(rows),
            )
            jax.block_until_ready(action)
        for rows in self._ladder.page_rows:
            jax.block_until_ready(self._programs.take_pages(self._state, np.zeros(rows, np.int32)))

    def run_once(self) -> Acted | None:
        """Acts on the next batch, if one comes soon; what it did."""
        now = self._clock()
        if now >= self._next_poll:
            self._next_poll = now + self._poll_seconds
            self._poll(now)
        # The run ends at its last step, however long that takes to be noticed.
        is_training_allowed = self.training_steps < self._total_steps and self._limiter.wait_to_act(
            0.0
        )
        batch = self._hub.next_batch(
            is_training_allowed=is_training_allowed,
            is_evaluation_allowed=self._evaluator.is_running,
            timeout=self._poll_seconds,
        )
        if not is_training_allowed:
            self._metrics.waited("acting", self._clock() - now)
        return None if batch is None else self._act(batch)

    def _poll(self, now: float) -> None:
        self._evaluator.poll(now, self._params.get(), self._hub.live_slots(evaluation=True))
        ended = self._hub.take_ended()
        if ended:
            self._send(FilledPages((), (), (), ended))

    def _act(self, batch: Batch) -> Acted:
        start = self._clock()
        frozen = self._evaluator.frozen if batch.evaluation else self._params.get()
        slots, positions, timestep = self._ladder.stage(batch)
        self._state, action = self._programs.act(
            self._state,
            frozen.params,
            np.int32(frozen.version),
            np.uint32(batch.number % 2**32),
            slots,
            positions,
            timestep,
        )
        actions = np.asarray(action)[: len(batch.slots)]
        self._hub.answer(batch, actions)
        end = self._clock()
        self._metrics.observe("queue_wait_ms", 1e3 * (start - batch.oldest_arrival))
        self._metrics.observe("inference_ms", 1e3 * (end - start))
        self._metrics.observe("reply_ms", 1e3 * (end - batch.oldest_arrival))
        self._account(batch, timestep)
        if not batch.evaluation:
            self._metrics.observe("batch_fill", len(batch.slots) / len(slots))
            self._metrics.observe(
                "serving_lag_updates", self._learned_version.get() - frozen.version
            )
            self._take_pages(batch)
        return Acted(batch, actions)

    def snapshot(self) -> ActingSnapshot:
        """A copy of what acting needs to go on. For the owning thread, or after it has ended."""
        frozen = self._params.get()
        return ActingSnapshot(
            state=jax.tree.map(np.array, self._state),
            params=jax.tree.map(np.array, frozen.params),
            version=np.array(frozen.version, np.int64),
            episode_returns=self._episodes.returns.copy(),
            episode_lengths=self._episodes.lengths.copy(),
        )

    def restore(self, snapshot: ActingSnapshot) -> None:
        """Inverse of `snapshot`, before anything has run."""
        frozen = self._params.get()
        state, params = jax.tree.map(
            lambda new, old: jax.device_put(new, old.sharding),
            (snapshot.state, snapshot.params),
            (self._state, frozen.params),
        )
        self._state = state
        self._params.put(FrozenParams(params, int(snapshot.version)))
        self._episodes.returns[:] = snapshot.episode_returns
        self._episodes.lengths[:] = snapshot.episode_lengths

    def _account(self, batch: Batch, timestep: TimeStep) -> None:
        rows = slice(len(batch.slots))
        step_type = timestep.step_type[rows]
        ended = self._episodes.observe(batch.slots, step_type, timestep.reward[rows])
        role: Role = "evaluation" if batch.evaluation else "training"
        for episode in ended:
            self._metrics.episode(role, episode.episode_return, episode.length_steps)
        # LAST -> FIRST rows are not environment steps: nothing was done in them.
        steps = int(np.count_nonzero(step_type != StepType.FIRST.value))
        if batch.evaluation:
            self._metrics.count("evaluation_steps", steps)
            result = self._evaluator.observe(self._clock(), batch.slots, step_type, ended)
            if result is not None:
                self._report(*result)
            return
        self.training_steps += steps
        self._limiter.acted(steps)
        self._metrics.count("env_steps", steps)
        self._metrics.count("frames", steps * self._frames_per_step)

    def _report(self, score: Score, was_confirming: bool) -> None:
        self.last_score = score
        self._metrics.gauge("return/evaluation", score.mean)
        self._metrics.record(
            "evaluation",
            mean_return=score.mean,
            episodes=len(score.returns),
            updates=score.frozen.version,
            env_steps=self.training_steps,
            is_confirmation=was_confirming,
        )

    def _take_pages(self, batch: Batch) -> None:
        full = np.flatnonzero(batch.positions == self._page_steps - 1)
        if not full.size:
            return
        slots = batch.slots[full]
        pages = self._programs.take_pages(self._state, self._ladder.pad_page_slots(slots))
        self._send(FilledPages(pages, batch.streams[full].tolist(), slots.tolist(), ()))

    def _send(self, item: FilledPages) -> None:
        # Blocks while learning is busy and the channel is full: that bounds what is in flight.
        start = self._clock()
        try:
            while not self._pages.put(item, timeout=1.0):
                pass
        except ClosedError:
            self.abandoned_rows += len(item.streams) * self._page_steps
            raise
        self._metrics.waited("acting", self._clock() - start)
