"""Bounds: the steps/s of acting without learning, of learning without acting, and of both.

Each side alone has all cores and devices, so the slower one bounds a run from above: s <= min(A, L)
with A the steps/s of acting and L the steps/s that the updates of learning admit. Where both share
the cores a step costs at most what it costs each side in turn, unless the two hinder each other:
s >= 1 / (1/A + 1/L). The further above that a run is, the more its sides overlap.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from learner.extras.bench.measuring import Pace, interleave, ratios, serial, spread
from learner.extras.bench.system import Interval, System
from learner.extras.bench.workloads import ENDLESS
from learner.runtime.channel import RateLimiter
from seedrl.config import Config
from seedrl.replay.prioritized import ReplayConfig
from seedrl.replay.queue import QueueConfig
from seedrl.replay.rate_limiter import RatioLimiter
from seedrl.timing import POLL_SECONDS

# So small that no parameter changes: all intervals act by one policy, and no update is skipped.
_NO_LEARNING_RATE = 1e-30
_TOLERANCE = 0.05  # of the bounds; two sides that differ by less are equal


class Bounds(NamedTuple):
    """Environment steps per second, a number a round, and how many steps an update stands for."""

    acting: tuple[float, ...]  # without learning
    learning: tuple[float, ...]  # that the updates of learning without acting admit
    both: tuple[float, ...]  # of the run
    update_steps: float  # environment steps that make up for an update

    @property
    def upper(self) -> tuple[float, ...]:
        """Of the slower side, whose work nothing of the other one holds up."""
        return tuple(map(min, zip(self.acting, self.learning, strict=True)))

    @property
    def lower(self) -> tuple[float, ...]:
        """Of both sides in turn on the same cores."""
        return tuple(serial(*each) for each in zip(self.acting, self.learning, strict=True))

    @property
    def of_upper(self) -> float:
        """The run's share of the upper bound: the median of the rounds."""
        return spread(ratios(self.both, self.upper)).median

    @property
    def of_lower(self) -> float:
        """As a multiple of the lower bound: the median of the rounds."""
        return spread(ratios(self.both, self.lower)).median

    @property
    def is_between(self) -> bool:
        """True if the run lies between the bounds, within the tolerance."""
        return self.of_lower >= 1 - _TOLERANCE and self.of_upper <= 1 + _TOLERANCE

    @property
    def binds(self) -> str:
        """The slower side: `acting`, `learning`, or `both` if they are equal but for 5 %."""
        ratio = spread(ratios(self.acting, self.learning)).median
        if 1 / (1 + _TOLERANCE) <= ratio <= 1 + _TOLERANCE:
            return "both"
        return "acting" if ratio < 1 else "learning"

    def to_json(self) -> dict[str, Any]:
        """All numbers by name, with unit."""
        rates = ("acting", "learning", "both", "upper", "lower")
        return {
            **{f"{name}_steps_per_second": _spread(getattr(self, name)) for name in rates},
            "steps_per_update": self.update_steps,
            "learning_updates_per_second": spread(self.learning).median / self.update_steps,
            **{name: getattr(self, name) for name in ("of_upper", "of_lower", "is_between")},
            "binds": self.binds,
        }


def _spread(rates: tuple[float, ...]) -> dict[str, Any]:
    return {**spread(rates)._asdict(), "rounds": rates}


def prepared(config: Config) -> Config:
    """The configuration of a run that never ends and never changes its policy.

    Replay starts to be learned from as soon as it has a batch: an update costs the same however
    full it is.
    """
    agent, replay, window = config.agent, config.replay, config.agent.window
    rates = {
        field.name: _NO_LEARNING_RATE
        for field in dataclasses.fields(agent)
        if field.name.endswith("learning_rate") and getattr(agent, field.name)
    }
    slots, batch = config.serving.training_slots, config.learning.batch_sequences
    if isinstance(replay, ReplayConfig):
        page = replay.steps_of_page(window)
        least = slots * window.pages_per_sequence(page) * page + batch * window.stride
        replay = dataclasses.replace(replay, min_steps=min(least, replay.min_steps))
    elif isinstance(replay, QueueConfig):
        # Pages that are open while learning is measured are as old as all its updates.
        replay = dataclasses.replace(replay, max_lag_updates=ENDLESS)
    return dataclasses.replace(
        config,
        agent=dataclasses.replace(agent, **rates),
        replay=replay,
        learning=dataclasses.replace(config.learning, total_steps=ENDLESS),
        # An env server has its part of the training slots; nothing is evaluated.
        launch=dataclasses.replace(config.launch, envs_per_server=0),
    )


def measure(config: Config, pace: Pace) -> Bounds:
    """Measures the run that `config` describes on this machine, its env servers included.

    Raises ConfigError if it cannot run.
    """
    with System(prepared(config)) as system:
        sides = Sides(system)
        sides.collect()
        # As long as a run takes to become steady: memory, caches and threads.
        system.run(0.0, by_updates=True)
        rates = interleave(
            {
                "both": lambda: _steps_per_second(system.run(pace.seconds, by_updates=True)),
                "acting": lambda: _steps_per_second(sides.act(pace.seconds)),
                "learning": lambda: sides.learn(pace.seconds),
            },
            pace.rounds,
        )
        update_steps = sides.update_steps()
    admitted = tuple(update_steps * rate for rate in rates["learning"])
    return Bounds(rates["acting"], admitted, rates["both"], update_steps)


def _steps_per_second(interval: Interval) -> float:
    return interval.steps / interval.seconds


class Sides:
    """Runs one side of a system while the other one rests. Used by one thread.

    What one interval does counts for no other: the rate limiter, and what a queue holds, are
    afterwards as they were.
    """

    def __init__(self, system: System):
        self._system, self._parts = system, system.parts
        self._learning, self._channel = system.parts.learning, system.parts.channel
        self._limiter = system.parts.channel.limiter
        # A queue hands out each sequence once: what learning takes is put back.
        self._is_queue = bool(self._learning.accounts())

    def collect(self) -> None:
        """Acts without learning until there is enough to learn from."""
        if self._limiter.now.is_ready:
            return
        bodies = self._acting_bodies(self._learning.run_without_update)
        self._system.run_until(lambda: self._limiter.now.is_ready, bodies)

    def act(self, seconds: float) -> Interval:
        """Acts, inserts what is acted, and never waits for learning."""
        is_alternating = self._system.served.config.learning.schedule != "asynchronous"
        timeout = 0.0 if is_alternating else POLL_SECONDS

        def take_in() -> None:
            self._learning.insert_pages(timeout)
            put_back()

        # Of a limiter that is never ready acting never waits, and the run's own counts nothing.
        self._channel.limiter = RateLimiter(RatioLimiter(1.0, 1, 1.0))
        try:
            with self._kept() as put_back:
                return self._system.run(seconds, bodies=self._acting_bodies(take_in))
        finally:
            self._channel.limiter = self._limiter

    def learn(self, seconds: float) -> float:
        """Learns from what was acted, and never waits for acting; updates per second."""
        self.collect()
        counts, batch = self._limiter.now.counts(), self._parts.geometry.batch_per_device

        def learn_once() -> None:
            if self._is_queue and min(self._learning.sequences_of_shards()) < batch:
                put_back()
            self._learning.run_once()

        with self._kept() as put_back:
            self._limiter.acted(ENDLESS)
            bodies = {"learning": learn_once}
            interval = self._system.run(seconds, by_updates=True, bodies=bodies)
            self._limiter.restore(counts)
        return interval.updates / interval.seconds

    def update_steps(self) -> float:
        """Environment steps that make up for an update."""
        limiter, config = self._limiter.now, self._system.served.config
        if isinstance(limiter, RatioLimiter):
            return limiter.update_steps / limiter.replay_ratio
        # The row between two episodes is no environment step.
        rows = self._system.served.hub.ledger()["answered"]
        share = self._parts.acting[0].training_steps / rows
        return config.learning.batch_sequences * config.agent.window.length * share

    @contextlib.contextmanager
    def _kept(self) -> Iterator[Callable[[], None]]:
        # What a queue holds is what it held, each time this is called, and at the end.
        states = [index.state() for index in self._learning.indices] if self._is_queue else []
        count = self._learning.num_sequences

        def put_back() -> None:
            if not states:
                return
            taken = count - self._learning.num_sequences
            for index, state in zip(self._learning.indices, states, strict=True):
                index.restore(state)
            # What learning has taken counts as acted again, or acting would get ahead by as much.
            self._limiter.acted(0, pages=max(0, taken))

        try:
            yield put_back
        finally:
            put_back()

    def _acting_bodies(self, take_in: Callable[[], object]) -> Mapping[str, Callable[[], object]]:
        bodies = dict(self._system.bodies)
        if "learning" in bodies:
            return {**bodies, "learning": take_in}
        (name,) = bodies  # one thread does both in turn

        def act_and_take_in() -> None:
            self._parts.acting[0].run_once()
            take_in()

        return {name: act_and_take_in}
