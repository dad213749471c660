"""`seedrl train --balance auto`: env servers, groups and the batch deadline of a live run.

What `seedrl tune` tries before a run, in the order that the run's verdict says, one move at a time:

    slow environments, slow network, small batches   env servers, up to the saturation point
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
from typing import NamedTuple

from learner.processes.env_servers import Fleets
from learner.report.balance import Costs, costs_of, gain, saturation
from learner.report.events import EventSink
from learner.report.stages import num_cores
from learner.report.verdict import LEAST_GAIN, Conditions, verdict

_MOST_MOVES, _WITHIN_SECONDS = 3, 60.0
# Until env servers that were started have joined; then the move is measured without them.
_JOIN_SECONDS = 30.0
# Of the predicted number of env servers, kept as a reserve when others are released.
_RESERVE = 1.25
# What a release may cost, and what a move has to bring to stay.
_NOISE = 0.03
# An environment whose steps take so much longer or shorter is another one.
_OTHER_PACE = 1.5


class Setting(NamedTuple):
    """The knobs."""

    env_servers: int
    groups: int
    batch_deadline_seconds: float

    def text(self, other: "Setting") -> str:
        """What differs from another setting."""
        deadlines = [1e3 * each.batch_deadline_seconds for each in (self, other)]
        parts = [
            f"{self.env_servers} env servers instead of {other.env_servers}",
            f"{self.groups} groups instead of {other.groups}",
            f"batch deadline {deadlines[0]:g} ms instead of {deadlines[1]:g} ms",
        ]
        pairs = zip(parts, self, other, strict=True)
        return ", ".join(part for part, now, before in pairs if now != before)


class Move(NamedTuple):
    """A change of the setting, and what it is expected to bring: 0.25 is a quarter more steps/s."""

    before: Setting
    after: Setting
    predicted: float
    rate: float = 0.0  # steps/s before it
    at: float = 0.0

    @property
    def knob(self) -> tuple[bool, ...]:
        """Which knobs it turns up, and which down."""
        pairs = list(zip(self.before, self.after, strict=True))
        return tuple([new > old for old, new in pairs] + [new < old for old, new in pairs])


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
        self._has_joined = False
        # Moves in vain, with the seconds of an environment's step at that time.
        self._in_vain: dict[tuple[bool, ...], float] = {}

    def update(self, metrics: Mapping[str, float], conditions: Conditions) -> None:
        """Takes an interval's metrics."""
        costs = costs_of(metrics, cores=num_cores())
        if costs is None:
            return
        if self._made is not None:
            self._measure(self._made, metrics, costs, len(conditions.rates))
            return
        conditions = conditions._replace(deadline_seconds=self.setting.batch_deadline_seconds)
        wanted = self._next(metrics, costs, conditions)
        before, self._wanted = self._wanted, wanted
        if wanted is None or before is None or wanted.knob != before.knob or not self._may_move():
            return
        self._wanted, self._has_joined = None, False
        rate, now = metrics["env_steps_per_second"], self._clock()
        self._made = wanted._replace(rate=rate, at=now)
        self._report(self._made, None)
        self._apply(wanted.after)

    def _may_move(self) -> bool:
        # One is left for undoing it.
        newest = [at for at in self._times if self._clock() - at < _WITHIN_SECONDS]
        return len(newest) < _MOST_MOVES - 1

    def _next(
        self, metrics: Mapping[str, float], costs: Costs, conditions: Conditions
    ) -> Move | None:
        # Without what no move changes: a slow env server, other programs.
        own = {**metrics, "other_cpu_seconds_per_second": 0.0}
        found, now = verdict(own, costs, conditions._replace(rates={})), self.setting
        after, predicted = now, found.gain
        if found.cause in ("slow environments", "slow network", "small batches"):
            number = max(now.env_servers + 1, math.ceil(saturation(costs) - 0.05))
            after = now._replace(env_servers=min(self._fleets.most, number))
            predicted = gain(costs, costs.env_servers * after.env_servers / now.env_servers)
        elif found.cause == "too few groups":
            after = now._replace(groups=2)
        elif found.cause == "long deadline":
            after = now._replace(batch_deadline_seconds=now.batch_deadline_seconds / 2)
        move = Move(now, after, predicted)
        if after == now or predicted < LEAST_GAIN or self._was_in_vain(move, costs):
            enough = _RESERVE * saturation(costs)
            fewer = [number for number in self._fleets.sizes if number >= enough]
            after = now._replace(env_servers=min([now.env_servers, *fewer]))
            predicted = gain(costs, costs.env_servers * after.env_servers / now.env_servers)
            move = Move(now, after, predicted)
            if after == now or predicted < -_NOISE or self._was_in_vain(move, costs):
                return None
        return move

    def _was_in_vain(self, move: Move, costs: Costs) -> bool:
        seconds = self._in_vain.get(move.knob, 0.0)
        return seconds / _OTHER_PACE < costs.environment < seconds * _OTHER_PACE

    def _measure(
        self, made: Move, metrics: Mapping[str, float], costs: Costs, num_live: int
    ) -> None:
        is_late = self._clock() - made.at >= _JOIN_SECONDS
        if not self._has_joined and not is_late:
            # The next interval has nothing of the time before.
            self._has_joined = num_live == made.after.env_servers
            return
        measured = metrics["env_steps_per_second"] / made.rate - 1
        least = -_NOISE if made.after.env_servers < made.before.env_servers else _NOISE
        is_kept = measured >= least
        self._made = None
        self._report(made, measured, is_kept=is_kept)
        if not is_kept:
            self._in_vain[made.knob] = costs.environment
            self._apply(made.before)

    def _apply(self, setting: Setting) -> None:
        self._times.append(self._clock())
        if setting.batch_deadline_seconds != self.setting.batch_deadline_seconds:
            self._set_deadline(setting.batch_deadline_seconds)
        if setting.groups != self.setting.groups:
            self._fleets.regroup(setting.groups)
        if setting.env_servers != self.setting.env_servers:
            self._fleets.resize(setting.env_servers)
        self.setting = setting

    def _report(self, move: Move, measured: float | None, *, is_kept: bool = True) -> None:
        text = f"balance: {move.after.text(move.before)}: predicted {move.predicted:+.0%}"
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
