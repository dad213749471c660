"""`seedrl train --balance auto`: env servers, groups and the batch deadline of a live run.

What `seedrl tune` tries before a run, in the order that the run's verdict says, one move at a time:

    slow environments, slow network, small batches   env servers, beyond the saturation point
    too few groups                                   two groups
    long deadline                                    half of it
    more env servers than the run needs              those that were started last are released

A move follows two intervals of metrics that ask for it, is measured over one that has nothing else,
and is undone if it was in vain; then it is not tried again until the environment has another pace.
Nothing changes that decides what is learned from a step. An env server has as many environments as
before, in slots that were free.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

from learner.processes.env_servers import Fleets
from learner.report.balance import LEAST_GAIN, Costs, costs_of, gain, saturation
from learner.report.events import EventSink
from learner.report.stages import num_cores
from learner.report.verdict import Conditions, verdict

_MOST_MOVES, _WITHIN_SECONDS = 3, 60.0
# Until env servers that were started have joined; then the move is measured without them.
_JOIN_SECONDS = 30.0
# Of the predicted saturation point: near it the model promises too much.
_RESERVE = 1.25
# What a release may cost, and what any other move has to bring to stay.
_NOISE = 0.03
# An environment whose steps take so much longer or shorter is another one.
_OTHER_PACE = 1.5


class Setting(NamedTuple):
    """The knobs."""

    env_servers: int
    groups: int
    batch_deadline_seconds: float


class Move(NamedTuple):
    """A change of the setting, and what it is expected to bring: 0.25 is a quarter more steps/s."""

    knob: Literal["start", "release", "groups", "deadline"]
    before: Setting
    after: Setting
    predicted: float


class Balancer:
    """Looks at each interval's metrics and makes moves. Used by the main thread."""

    def __init__(
        self,
        setting: Setting,
        fleets: Fleets,
        *,
        set_deadline: Callable[[float], object],
        listener: EventSink,
        clock: Callable[[], float] = time.monotonic,
    ):
        """Starts with the env servers of `fleets`. `set_deadline` takes that of batches."""
        self.setting = setting
        self._fleets, self._set_deadline, self._listener = fleets, set_deadline, listener
        self._clock = clock
        self._times: deque[float] = deque(maxlen=_MOST_MOVES)
        self._wanted: Move | None = None  # by the last interval
        self._made: Move | None = None  # and not yet measured
        self._costs: Costs  # of the last interval that has shown some
        self._rate_before = 0.0  # steps/s before it
        self._has_joined = False
        # Moves in vain, with the seconds of an environment's step at that time.
        self._in_vain: dict[str, float] = {}

    def update(self, metrics: Mapping[str, float], conditions: Conditions) -> None:
        """Takes an interval's metrics."""
        costs = costs_of(metrics, cores=num_cores())
        is_late = self._made is not None and self._clock() - self._times[-1] >= _JOIN_SECONDS
        if costs is None and not is_late:
            return
        # Of a move after which no step has come: those of the time before it.
        self._costs = costs = costs or self._costs
        rate = metrics.get("env_steps_per_second", 0.0)
        if self._made is not None:
            if self._has_joined or is_late:
                self._measure(self._made, rate, costs)
            # If they have, the next interval has nothing of the time before.
            self._has_joined = len(conditions.rates) == self.setting.env_servers
            return
        before, self._wanted = self._wanted, self._next(metrics, costs, conditions)
        now = self._clock()
        # One of them is left for undoing this one.
        is_allowed = sum(now - at < _WITHIN_SECONDS for at in self._times) < _MOST_MOVES - 1
        if before and self._wanted and before.knob == self._wanted.knob and is_allowed:
            self._made, self._wanted = self._wanted, None
            self._rate_before, self._has_joined = rate, False
            self._report(self._made)
            self._apply(self._made.after)

    def _next(
        self, metrics: Mapping[str, float], costs: Costs, conditions: Conditions
    ) -> Move | None:
        # Without what no move changes: a slow env server, other programs.
        metrics = {**metrics, "other_cpu_seconds_per_second": 0.0}
        found, now = verdict(metrics, costs, conditions._replace(rates={})), self.setting
        enough = _RESERVE * saturation(costs)
        wanted: Move | None = None
        if found.cause in ("slow environments", "slow network", "small batches"):
            number = min(self._fleets.most, max(now.env_servers + 1, math.ceil(enough - 0.05)))
            wanted = self._resized("start", number, costs)
        elif found.cause == "too few groups":
            wanted = Move("groups", now, now._replace(groups=2), found.gain)
        elif found.cause == "long deadline":
            half = now._replace(batch_deadline_seconds=now.batch_deadline_seconds / 2)
            wanted = Move("deadline", now, half, found.gain)
        if wanted and wanted.predicted >= LEAST_GAIN and not self._was_in_vain(wanted, costs):
            return wanted
        number = min(each for each in self._fleets.sizes if each >= min(now[0], enough))
        fewer = self._resized("release", number, costs)
        is_free = number < now.env_servers and fewer.predicted >= -_NOISE
        return fewer if is_free and not self._was_in_vain(fewer, costs) else None

    def _resized(self, knob: Literal["start", "release"], number: int, costs: Costs) -> Move:
        now = self.setting
        predicted = gain(costs, costs.env_servers * number / now.env_servers)
        return Move(knob, now, now._replace(env_servers=number), predicted)

    def _was_in_vain(self, move: Move, costs: Costs) -> bool:
        seconds = self._in_vain.get(move.knob, 0.0)
        return seconds / _OTHER_PACE < costs.environment < seconds * _OTHER_PACE

    def _measure(self, made: Move, rate: float, costs: Costs) -> None:
        measured = rate / self._rate_before - 1
        is_kept = measured >= (-_NOISE if made.knob == "release" else _NOISE)
        self._made = None
        self._report(made, measured, is_kept=is_kept)
        if not is_kept:
            self._in_vain[made.knob] = costs.environment
            self._apply(made.before)

    def _apply(self, setting: Setting) -> None:
        self._times.append(self._clock())
        before, self.setting = self.setting, setting
        if setting.batch_deadline_seconds != before.batch_deadline_seconds:
            self._set_deadline(setting.batch_deadline_seconds)
        if setting.groups != before.groups:
            self._fleets.regroup(setting.groups)
        self._fleets.resize(setting.env_servers)

    def _report(self, move: Move, measured: float | None = None, *, is_kept: bool = True) -> None:
        number, groups, deadline = move.after
        text = f"balance: {number} env servers with {groups} groups, batches after at most "
        text += f"{1e3 * deadline:g} ms: predicted {move.predicted:+.0%}"
        if measured is not None:
            text += f", measured {measured:+.0%}{'' if is_kept else ': undone'}"
        self._listener.report(
            "balance",
            text,
            before=move.before._asdict(),
            after=move.after._asdict(),
            predicted=move.predicted,
            measured=measured,
            is_kept=is_kept,
        )
