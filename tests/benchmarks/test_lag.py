"""The bounds of lag hold whatever acting and learning do, and what breaks them is counted."""

import dataclasses
import random
from collections import deque
from typing import NamedTuple

import numpy as np
import pytest

from seedrl import config_file
from seedrl.config import Config
from seedrl.replay.queue_index import QueueIndex, stale_pages
from seedrl.replay.queue_limiter import QueueLimiter
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
    config = config_file.load("cartpole_impala")
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


def _played(
    case: _Case, seed: int, *, max_lag: int, is_even: bool = False, is_starved: bool = False
) -> _Played:
    """What happens when acting and learning continue in any order that is allowed.

    Args:
      is_even: no slot is ahead of another by more than a sequence.
      is_starved: slot 0 acts thirty times less often than others.
    """
    chance = random.Random(seed)
    limiter = QueueLimiter(case.batch, num_devices=1, ahead_updates=case.ahead)
    index = QueueIndex(capacity_sequences=99, batch=case.batch)
    waiting: dict[int, list[int]] = {}
    sent: deque[list[int]] = deque()
    pages: list[list[int]] = [[] for _ in range(case.slots)]
    numbers = [0] * case.slots
    version = finished = begun = completed = num_stale = 0
    given = {}
    while begun < 60:
        if chance.random() < 0.6 and limiter.may_act():
            allowed = [
                slot
                for slot in range(case.slots)
                if not is_even or numbers[slot] < min(numbers) + _LENGTH
            ]
            if is_starved and chance.random() > 1 / 30:
                allowed.remove(0)
            batch = chance.sample(allowed, chance.randint(1, len(allowed)))
            num_full = 0
            for slot in batch:
                numbers[slot] += 1
                pages[slot].append(version)
                if len(pages[slot]) == _LENGTH:
                    sent.append(pages[slot])
                    pages[slot] = []
                    num_full += 1
            limiter = limiter.acted(len(batch), num_full)
            completed += num_full
        elif chance.random() < 0.5:
            oldest = [page[0] for page in sent]
            stale = stale_pages(
                oldest, begun, index.num_sequences, batch=case.batch, max_lag=max_lag
            )
            for position in range(len(sent)):
                page = sent.popleft()
                if position not in stale:
                    (place,) = index.plan([0]).tolist()
                    waiting[place] = page
            limiter = limiter.acted(0, -len(stale))
            num_stale += len(stale)
            finished = begun
            if finished % case.publish_every == 0:
                version = finished
            limiter = limiter.holds([index.num_sequences])
            if limiter.may_learn():
                rows = [waiting.pop(place) for place in index.draw().tolist()]
                number = np.arange(case.batch * _LENGTH).reshape(_LENGTH, -1)
                given[begun] = Given(np.array(rows).T, number + begun * number.size)
                begun += 1
                limiter = limiter.took()
    return _Played(given, completed - len(sent), num_stale, len(waiting))


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
    learning = dataclasses.replace(config.learning, regime="synchronous")
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
