"""The model of both arms, against numbers worked by hand."""

import dataclasses

import pytest

from tests.benchmarks.broadcast.model import (
    Costs,
    broadcast,
    central,
    crossover,
    messages_of_batch,
)

# A group has 8 environments, an actor 16, a rollout 21 steps of each.
COSTS = Costs(
    message=(120e-6, 80e-6),
    message_byte=1e-9,
    batch={64: (160e-6, 320e-6)},
    batch_byte=2e-9,
    actor={64: (10e-6, 12e-6)},
    actor_byte=3e-9,
    exchange=336e-6,
    rollout_byte=4e-9,
    params_byte=1e-9,
    deadline_seconds=1e-3,
)


def test_a_step_costs_its_part_of_message_and_batch() -> None:
    # 80 / 8 + 320 / 32 µs, and 1,000 bytes of 1 + 2 ns
    assert central(COSTS, 64, 1000, step_seconds=0.0) == pytest.approx(23e-6)


def test_slow_environments_break_batches_up() -> None:
    # Of the 3 other env servers each sends within the deadline with probability 1 / 9.
    patient = dataclasses.replace(COSTS, message=(0.0, 0.0))
    assert messages_of_batch(patient, 64, 0, step_seconds=9e-3) == pytest.approx(4 / 3)
    assert central(patient, 64, 0, step_seconds=9e-3) == pytest.approx(160e-6 / (8 * 4 / 3))


def test_a_long_batch_gathers_messages() -> None:
    # 4 ms of inference, as long as a step: the next batch has all of them.
    slow = dataclasses.replace(COSTS, message=(0.0, 0.0), batch={64: (4e-3, 4e-3)})
    assert messages_of_batch(slow, 64, 0, step_seconds=4e-3) == pytest.approx(4.0)


def test_a_step_costs_its_part_of_rollout_and_parameters() -> None:
    # 10 or 12 µs, 336 / 336 and 4 x 64 (16 + 64 + 7) / 336 of 1 ns, 1,000 bytes of 3 + 4 ns
    sent = 1e-6 + 22_272 / 336 * 1e-9 + 7e-6
    assert broadcast(COSTS, 64, 1000, step_seconds=0.0) == pytest.approx(10e-6 + sent)
    assert broadcast(COSTS, 64, 1000, step_seconds=1e-3) == pytest.approx(12e-6 + sent)


def test_a_message_by_itself_costs_more() -> None:
    # Almost none shares its batch: 120 / 8 + 160 / 8 µs
    assert central(COSTS, 64, 0, step_seconds=1e6) == pytest.approx(35e-6)


def test_the_crossover_is_between_the_numbers_around_it() -> None:
    assert crossover([100, 10_000], [2.0, 0.5]) == pytest.approx(1000.0)
    assert crossover([1, 100, 10_000], [8.0, 2.0, 0.5]) == pytest.approx(1000.0)
    assert crossover([100, 10_000], [0.9, 0.5]) is None
    assert crossover([100, 10_000], [3.0, 1.1]) is None
