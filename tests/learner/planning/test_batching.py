"""Batches of messages that arrive at any time, worked by hand."""

import math

import pytest

from learner.planning.batching import batching, batching_in_step


def test_a_message_alone_is_acted_on_at_once() -> None:
    found = batching(20.0, service_seconds=0.0, deadline_seconds=0.001, target=1)
    assert found == (1.0, 0.0)


def test_others_join_while_the_oldest_waits() -> None:
    # 2,000 a second and 1 ms: two more join. The oldest waits for 1 ms, the others for half of it.
    found = batching(2_000.0, service_seconds=0.0005, deadline_seconds=0.001, target=64)
    assert found.messages == pytest.approx(3.0)
    assert found.wait_seconds == pytest.approx((1.0 + 0.5 + 0.5) / 3 * 1e-3)


def test_enough_messages_end_the_wait() -> None:
    # The second of two arrives half a millisecond after the first.
    found = batching(2_000.0, service_seconds=0.0, deadline_seconds=0.001, target=2)
    assert found.messages == pytest.approx(2.0)
    assert found.wait_seconds == pytest.approx((0.5 + 0.25) / 2 * 1e-3)


def test_messages_gather_while_a_batch_before_is_acted_on() -> None:
    # 2,000 a second and 3 ms: six arrive meanwhile, and hardly ever is nobody there in the last 2.
    found = batching(2_000.0, service_seconds=0.003, deadline_seconds=0.001, target=64)
    assert found.messages == pytest.approx(6.0 + math.exp(-4.0))


def test_equal_steps_end_one_after_another() -> None:
    # One every 0.4 ms: 2.5 more in the millisecond of the oldest.
    found = batching_in_step(0.0004, deadline_seconds=0.001, target=64)
    assert found.messages == pytest.approx(3.5)
    assert found.wait_seconds == pytest.approx((1.0 + 2.5 * 0.5) / 3.5 * 1e-3)
    # The second of two comes after 0.4 ms.
    found = batching_in_step(0.0004, deadline_seconds=0.001, target=2)
    assert found.messages == pytest.approx(2.0)
    assert found.wait_seconds == pytest.approx((0.4 + 0.2) / 2 * 1e-3)
