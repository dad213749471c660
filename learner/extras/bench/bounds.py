"""Bounds of a run: acting without learning, learning without acting, and both.

With A the steps/s of acting, L the steps/s that the updates of learning admit, and s of the run:

    1 / (1/A + 1/L) <= s <= min(A, L)

On its own a side has all cores and devices, so that the slower one bounds the run from above. From
below: both sides in turn on the same cores, without overlap. A run is slower than that only if its
sides hinder each other.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from learner.extras.bench.measuring import Pace, interleave, ratios, serial, spread
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
_TOLERANCE = 0.05  # of the bounds; two sides that differ by less are equal


def compared(
    acting: Sequence[Interval],
    learning: Sequence[Interval],
    both: Sequence[Interval],
    *,
    update_steps: float,
) -> dict[str, Any]:
    """The two sides and the run, an interval a round of each; all numbers by name.

    `update_steps`: environment steps that make up for an update. Ratios are medians of the rounds,
    because only the intervals of one round saw the same machine.
    """
    steps = {
        "acting": [float(each.steps) for each in acting],
        "learning": [each.updates * update_steps for each in learning],
        "both": [float(each.steps) for each in both],
    }
    rates, costs, cores = {}, {}, {}
    for side, intervals in {"acting": acting, "learning": learning, "both": both}.items():
        pairs = list(zip(steps[side], intervals, strict=True))
        rates[side] = [number / each.seconds for number, each in pairs]
        # At a huge replay ratio an interval may have no step.
        costs[side] = [each.processor_seconds / max(number, 1.0) for number, each in pairs]
        cores[side] = spread([each.processor_seconds / each.seconds for each in intervals]).median
    sides = list(zip(rates["acting"], rates["learning"], strict=True))
    rates |= {"upper": [min(pair) for pair in sides], "lower": [serial(*pair) for pair in sides]}
    apart = list(map(sum, zip(costs["acting"], costs["learning"], strict=True)))
    of = {
        "of_upper": spread(ratios(rates["both"], rates["upper"])).median,
        "of_lower": spread(ratios(rates["both"], rates["lower"])).median,
        # More than 1: the sides hinder each other.
        "of_processor_time": spread(ratios(costs["both"], apart)).median,
    }
    ratio = spread(ratios(*(rates[side] for side in ("acting", "learning")))).median
    is_equal = 1 / (1 + _TOLERANCE) <= ratio <= 1 + _TOLERANCE
    return {
        **{
            f"{name}_steps_per_second": {**spread(values)._asdict(), "rounds": values}
            for name, values in rates.items()
        },
        **{f"{side}_cores": number for side, number in cores.items()},
        "steps_per_update": update_steps,
        **of,
        "is_between": of["of_upper"] <= 1 + _TOLERANCE and of["of_lower"] >= 1 - _TOLERANCE,
        "binds": "both" if is_equal else "acting" if ratio < 1 else "learning",
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


def measure(config: Config, pace: Pace) -> dict[str, Any]:
    """Measures on this machine the run that `config` describes, with its env servers.

    Returns what `compared` does. Raises ConfigError if it cannot run.
    """
    with System(prepared(config)) as system:
        sides = Sides(system)
        sides.collect()
        sides.run(0.0)  # the first update is slower than those that follow
        intervals = interleave(
            {
                "both": lambda: sides.run(pace.seconds),
                "acting": lambda: sides.act(pace.seconds),
                "learning": lambda: sides.learn(pace.seconds),
            },
            pace.rounds,
        )
        return compared(**intervals, update_steps=sides.update_steps())


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
