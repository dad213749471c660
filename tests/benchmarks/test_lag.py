"""The bounds of lag hold whatever acting and learning do, and what breaks them is counted."""

import dataclasses
import random
from collections import deque
from typing import NamedTuple

import numpy as np
import pytest

from seedrl import config_file
from seedrl.config import Config
from seedrl.replay.queue_index import QueueIndex
from seedrl.replay.queue_limiter import QueueLimiter
from tests.benchmarks.lag import Bounds, Given, bounds_of, judged

_LENGTH = 5


class _Case(NamedTuple):
    slots: int
    batch: int
    ahead: int
    publish_every: int


def _config(case: _Case) -> Config:
    config = config_file.load("cartpole_impala")
    return dataclasses.replace(
        config,
        serving=dataclasses.replace(config.serving, training_slots=case.slots),
        replay=dataclasses.replace(config.replay, ahead_updates=case.ahead),
        learning=dataclasses.replace(
            config.learning, batch_sequences=case.batch, publish_every_updates=case.publish_every
        ),
    )


def _given(case: _Case, seed: int, *, is_even: bool) -> dict[int, Given]:
    """What updates are given when acting and learning continue in any order that is allowed.

    With `is_even` no slot is ahead of another by more than a sequence.
    """
    chance = random.Random(seed)
    limiter = QueueLimiter(case.batch, num_devices=1, ahead_updates=case.ahead)
    index = QueueIndex(capacity_sequences=99, batch=case.batch)
    waiting: dict[int, list[int]] = {}
    sent: deque[list[int]] = deque()
    pages: list[list[int]] = [[] for _ in range(case.slots)]
    numbers = [0] * case.slots
    version = finished = begun = 0
    given = {}
    while begun < 60:
        if chance.random() < 0.6 and limiter.may_act():
            allowed = [
                slot
                for slot in range(case.slots)
                if not is_even or numbers[slot] < min(numbers) + _LENGTH
            ]
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
        elif chance.random() < 0.5:
            for _ in range(len(sent)):
                (place,) = index.plan([0]).tolist()
                waiting[place] = sent.popleft()
            finished = begun
            if finished % case.publish_every == 0:
                version = finished
            limiter = limiter.holds(index.num_sequences)
            if limiter.may_learn():
                rows = [waiting.pop(place) for place in index.draw().tolist()]
                number = np.arange(case.batch * _LENGTH).reshape(_LENGTH, -1)
                given[begun] = Given(np.array(rows).T, number + begun * number.size)
                begun += 1
                limiter = limiter.took()
    return given


@pytest.mark.parametrize(
    "case", [_Case(4, 4, 1, 1), _Case(7, 2, 2, 1), _Case(3, 6, 1, 3), _Case(1, 1, 1, 2)]
)
def test_no_row_is_older_than_its_bound(case: _Case) -> None:
    bounds = bounds_of(_config(case))
    for seed in range(10):
        even = judged(_given(case, seed, is_even=True), bounds)
        assert (even["exceptions"], even["shared"]) == (0, 0)
        # Of environments of any speed the row that completes a sequence.
        uneven = judged(_given(case, seed, is_even=False), bounds)
        assert 0 < uneven["largest_completing"] <= bounds.completing


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
