"""Bounds of a run: acting without learning, learning without acting, and both.

With A the steps/s of acting, L the steps/s that the updates of learning admit, and s of the run:

    1 / (1/A + 1/L) <= s <= min(A, L)

On its own a side has all cores and devices, so that the slower one bounds the run from above. From
below: both sides in turn on the same cores, without overlap. A run is slower than that only if its
sides hinder each other.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from learner.extras.bench.measuring import Pace, interleave
from learner.extras.bench.system import Interval, System
from learner.extras.bench.workloads import ENDLESS
from learner.runtime.channel import RateLimiter
from seedrl.config import Config
from seedrl.fields import with_fields
from seedrl.replay.prioritized import ReplayConfig
from seedrl.replay.queue import QueueConfig
from seedrl.replay.rate_limiter import RatioLimiter
from seedrl.timing import POLL_SECONDS

# So small that no parameter changes: all intervals act by one policy, and no update is skipped.
_NO_LEARNING_RATE = 1e-30


def rates(
    intervals: Mapping[str, Sequence[Interval]], update_steps: float
) -> dict[str, tuple[float, ...]]:
    """Environment steps per second by side, a number a round; see `measure`."""
    return {
        side: tuple(
            (each.updates * update_steps if side == "learning" else each.steps) / each.seconds
            for each in of_rounds
        )
        for side, of_rounds in intervals.items()
    }


def prepared(config: Config) -> Config:
    """The configuration of a run that never ends and never changes its policy.

    Replay starts to be learned from as soon as it has a batch: an update costs the same however
    full it is.
    """
    agent, replay, window = config.agent, config.replay, config.agent.window
    changes: dict[str, Any] = {
        f"agent.{field.name}": _NO_LEARNING_RATE
        for field in dataclasses.fields(agent)
        if field.name.endswith("learning_rate")
        # 0 of SAC's temperature keeps it; and a user's own field may be a schedule.
        if isinstance(rate := getattr(agent, field.name), float) and rate
    }
    changes["learning.total_steps"] = ENDLESS
    # An env server has its part of the training slots; nothing is evaluated.
    changes["launch.envs_per_server"] = 0
    slots, batch = config.serving.training_slots, config.learning.batch_sequences
    if isinstance(replay, ReplayConfig):
        page = replay.steps_of_page(window)
        least = slots * window.pages_per_sequence(page) * page + batch * window.stride
        changes["replay.min_steps"] = min(least, replay.min_steps)
    elif isinstance(replay, QueueConfig):
        # Pages that are open while learning is measured are as old as all its updates.
        changes["replay.max_lag_updates"] = ENDLESS
    return with_fields(config, changes)


def measure(config: Config, pace: Pace) -> tuple[dict[str, tuple[Interval, ...]], float]:
    """Measures on this machine the run that `config` describes, with its env servers.

    Returns the intervals of `acting`, `learning` and `both`, one a round, and the environment steps
    that make up for an update. Raises ConfigError if it cannot run.
    """
    with System(prepared(config)) as system:
        sides = Sides(system)
        sides.collect()
        sides.run(0.0)  # the first update is slower than those that follow
        measures = {"acting": sides.act, "learning": sides.learn, "both": sides.run}
        intervals = interleave(
            {side: partial(each, pace.seconds) for side, each in measures.items()}, pace.rounds
        )
        return intervals, sides.update_steps()


class Sides:
    """Runs a system, or one side of it while the other one rests. Used by one thread.

    One side's interval leaves no trace in the run: the rate limiter, and what a queue holds, are
    afterwards as they were.
    """

    def __init__(self, system: System):
        self._system, self._parts = system, system.parts
        self._learning, self._limiter = system.parts.learning, system.parts.channel.limiter

    def run(self, seconds: float) -> Interval:
        """Lets both sides run, as they do in training."""
        return self._system.run(seconds, by_updates=True)

    def collect(self) -> None:
        """Acts without learning until there is enough to learn from."""
        if not self._limiter.now.is_ready:
            bodies = self._acting_bodies(self._learning.run_without_update)
            self._system.run_until(lambda: self._limiter.now.is_ready, bodies)

    def act(self, seconds: float) -> Interval:
        """Acts and inserts, and never waits for learning."""
        held, channel = self._held(), self._parts.channel
        timeout = POLL_SECONDS if "learning" in self._system.bodies else 0.0

        def take_in() -> None:
            self._learning.insert_pages(timeout)
            self._put_back(held)

        # One that is never ready lets acting continue, and the run's own counts nothing.
        channel.limiter = RateLimiter(RatioLimiter(1.0, 1, 1.0))
        interval = self._system.run(seconds, bodies=self._acting_bodies(take_in))
        channel.limiter = self._limiter
        self._put_back(held)
        return interval

    def learn(self, seconds: float) -> Interval:
        """Learns from what was acted, and never waits for acting."""
        self.collect()
        held, counts = self._held(), self._limiter.now.counts()

        def learn_once() -> None:
            # A queue hands out each sequence once: it is filled again with the same ones.
            if min(self._learning.sequences_of_shards()) < self._parts.geometry.batch_per_device:
                self._put_back(held)
            self._learning.run_once()

        self._limiter.acted(ENDLESS)  # so that updates are owed for as long as it takes
        bodies = {"learning": learn_once}
        interval = self._system.run(seconds, by_updates=True, bodies=bodies)
        self._limiter.restore(counts)
        self._put_back(held)
        return interval

    def update_steps(self) -> float:
        """Environment steps that make up for an update."""
        limiter, config = self._limiter.now, self._system.served.config
        if isinstance(limiter, RatioLimiter):
            return limiter.update_steps / limiter.replay_ratio
        # Of a queue those of its sequences. The row between two episodes is none.
        rows = self._system.served.hub.ledger()["answered"]
        share = self._parts.acting[0].training_steps / rows
        return config.learning.batch_sequences * config.agent.window.length * share

    def _held(self) -> list[dict[str, Any]]:
        # Of each shard what waits to be learned from; empty for replay, where nothing waits.
        is_queue = bool(self._learning.accounts())
        return [index.state() for index in self._learning.indices] if is_queue else []

    def _put_back(self, held: list[dict[str, Any]]) -> None:
        if not held:
            return
        before = self._learning.num_sequences
        for index, state in zip(self._learning.indices, held, strict=True):
            index.restore(state)
        # What learning has taken counts as acted again, or acting would get ahead by as much.
        self._limiter.acted(0, pages=max(0, self._learning.num_sequences - before))

    def _acting_bodies(self, take_in: Callable[[], object]) -> Mapping[str, Callable[[], object]]:
        bodies = dict(self._system.bodies)
        if "learning" in bodies:
            return {**bodies, "learning": take_in}

        def act_and_take_in() -> None:
            self._parts.acting[0].run_once()
            take_in()

        return dict.fromkeys(bodies, act_and_take_in)  # one thread does both in turn
