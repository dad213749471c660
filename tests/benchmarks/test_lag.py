"""The bounds of lag hold whatever acting and learning do, and what breaks them is counted."""

import dataclasses
import random
from collections import deque
from typing import NamedTuple

import numpy as np
import pytest

from seedrl import config_io
from seedrl.config import Config
from seedrl.replay.index import QueueIndex, stale_pages
from seedrl.replay.rate_limiter import QueueLimiter
from tests.benchmarks.lag import Bounds, Given, bounds_of, judged

_LENGTH = 5
_NO_BOUND = 10**9


class _Case(NamedTuple):
    slots: int
    batch: int
    ahead: int
    publish_every: int


class _Played(NamedTuple):
    """What updates were given, and sequences by what became of them."""

    given: dict[int, Given]
    completed: int
    stale: int
    waiting: int


def _config(case: _Case, max_lag: int | None = None) -> Config:
    config = config_io.load("cartpole_impala")
    return dataclasses.replace(
        config,
        serving=dataclasses.replace(config.serving, training_slots=case.slots),
        replay=dataclasses.replace(
            config.replay, ahead_updates=case.ahead, max_lag_updates=max_lag
        ),
        learning=dataclasses.replace(
            config.learning, batch_sequences=case.batch, publish_every_updates=case.publish_every
        ),
    )


class _Play:
    """Acting and learning, in an order that is drawn from all that are allowed.

    `is_even`: no slot is ahead of another by more than a sequence. `is_starved`: slot 0 acts thirty
    times less often than others.
    """

    def __init__(
        self, case: _Case, seed: int, *, max_lag: int, is_even: bool, is_starved: bool
    ) -> None:
        self._case, self._max_lag = case, max_lag
        self._is_even, self._is_starved = is_even, is_starved
        self._chance = random.Random(seed)
        self._limiter = QueueLimiter(case.batch, num_devices=1, ahead_updates=case.ahead)
        self._index = QueueIndex(capacity_sequences=99, batch=case.batch)
        self._waiting: dict[int, list[int]] = {}
        self._sent: deque[list[int]] = deque()
        self._pages: list[list[int]] = [[] for _ in range(case.slots)]
        self._numbers = [0] * case.slots
        self._version = self._completed = self._num_stale = 0
        self.given: dict[int, Given] = {}

    @property
    def result(self) -> _Played:
        """So far."""
        completed = self._completed - len(self._sent)
        return _Played(self.given, completed, self._num_stale, len(self._waiting))

    def go_on(self) -> None:
        """One of both does what it may, or neither."""
        if self._chance.random() < 0.6 and self._limiter.may_act():
            self._act()
        elif self._chance.random() < 0.5:
            self._insert()
            self._learn()

    def _act(self) -> None:
        most = min(self._numbers) + _LENGTH
        slots = range(self._case.slots)
        allowed = [slot for slot in slots if not self._is_even or self._numbers[slot] < most]
        if self._is_starved and self._chance.random() > 1 / 30:
            allowed.remove(0)
        batch = self._chance.sample(allowed, self._chance.randint(1, len(allowed)))
        num_full = 0
        for slot in batch:
            self._numbers[slot] += 1
            self._pages[slot].append(self._version)
            if len(self._pages[slot]) == _LENGTH:
                self._sent.append(self._pages[slot])
                self._pages[slot] = []
                num_full += 1
        self._limiter = self._limiter.acted(len(batch), num_full)
        self._completed += num_full

    def _insert(self) -> None:
        begun, num_waiting = len(self.given), self._index.num_sequences
        oldest = [page[0] for page in self._sent]
        stale = stale_pages(
            oldest, begun, num_waiting, batch=self._case.batch, max_lag=self._max_lag
        )
        for position in range(len(self._sent)):
            page = self._sent.popleft()
            if position not in stale:
                (place,) = self._index.plan([0]).tolist()
                self._waiting[place] = page
        self._limiter = self._limiter.acted(0, -len(stale))
        self._num_stale += len(stale)

    def _learn(self) -> None:
        begun = len(self.given)  # all of them have been finished meanwhile
        if begun % self._case.publish_every == 0:
            self._version = begun
        self._limiter = self._limiter.holds([self._index.num_sequences])
        if self._limiter.may_learn():
            rows = [self._waiting.pop(place) for place in self._index.draw().tolist()]
            number = np.arange(self._case.batch * _LENGTH).reshape(_LENGTH, -1)
            self.given[begun] = Given(np.array(rows).T, number + begun * number.size)
            self._limiter = self._limiter.took()


def _played(
    case: _Case, seed: int, *, max_lag: int, is_even: bool = False, is_starved: bool = False
) -> _Played:
    """What happens until 60 updates have begun; see `_Play`."""
    play = _Play(case, seed, max_lag=max_lag, is_even=is_even, is_starved=is_starved)
    while len(play.given) < 60:
        play.go_on()
    return play.result


@pytest.mark.parametrize(
    "case", [_Case(4, 4, 1, 1), _Case(7, 2, 2, 1), _Case(3, 6, 1, 3), _Case(1, 1, 1, 2)]
)
def test_no_row_is_older_than_its_bound(case: _Case) -> None:
    ordinary = case.ahead + case.publish_every + max(0, 2 * case.slots - 3) // case.batch
    bounds = bounds_of(_config(case, ordinary))
    assert bounds.row == ordinary
    for seed in range(10):
        even = _played(case, seed, max_lag=ordinary, is_even=True)
        assert even.stale == 0  # what is of one pace never meets such a bound
        found = judged(even.given, bounds)
        assert (found["exceptions"], found["shared"]) == (0, 0)
        # Of environments of any speed, with or without bound, the row that completes a sequence.
        uneven = judged(_played(case, seed, max_lag=_NO_BOUND).given, bounds)
        assert 0 < uneven["largest_completing"] <= bounds.completing


@pytest.mark.parametrize("case", [_Case(4, 4, 1, 1), _Case(7, 2, 2, 1), _Case(3, 6, 1, 3)])
def test_sequences_of_a_starved_slot_are_dropped_before_they_exceed_the_bound(case: _Case) -> None:
    bounds = bounds_of(_config(case, case.ahead + case.publish_every))
    exceptions = stale = 0
    for seed in range(4):
        unbounded = _played(case, seed, max_lag=_NO_BOUND, is_starved=True)
        exceptions += judged(unbounded.given, bounds)["exceptions"]
        bounded = _played(case, seed, max_lag=bounds.row, is_starved=True)
        assert judged(bounded.given, bounds)["exceptions"] == 0
        trained = len(bounded.given) * case.batch
        assert bounded.completed == trained + bounded.stale + bounded.waiting
        stale += bounded.stale
    assert exceptions > 0 and stale > 0


def test_rounds_allow_no_lag() -> None:
    config = _config(_Case(4, 4, 1, 1))
    learning = dataclasses.replace(config.learning, schedule="synchronous")
    assert bounds_of(dataclasses.replace(config, learning=learning)) == Bounds(0, 0)


def test_rows_of_another_version_and_shared_rows_are_counted() -> None:
    # Update 3 of two sequences of three rows: lags 1, 1 / -1, 0 / 0, 2; one observation twice.
    version = np.array([[2, 2], [4, 3], [3, 1]])
    observation = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 1.0]])[..., None]
    assert judged({3: Given(version, observation)}, Bounds(2, 1)) == {
        "updates": 1,
        "rows": 6,
        "shared": 1,
        "exceptions": 2,  # of the future, and a last row above its own bound
        "largest": 2,
        "largest_completing": 2,
    }
