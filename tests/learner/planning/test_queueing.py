"""Closed networks whose throughput is known by hand."""

import pytest

from learner.planning.queueing import Station, throughput


def test_one_customer_waits_for_nobody() -> None:
    stations = [Station("a", 0.2, 1), Station("b", 0.3, 4)]
    assert throughput(stations, delay_seconds=0.5, customers=1) == pytest.approx(1 / 1.0)


def test_two_customers_at_one_server() -> None:
    # The first alone: R = 1, X = 1 / 2, Q = 1 / 2. With the second: R = 1 + 1 / 2, X = 2 / 2.5.
    # (As a chain: 2 away, 1 away, none, at rates 2, 1 and 1 each way: 1 - p(none there) = 0.8.)
    assert throughput([Station("a", 1.0, 1)], delay_seconds=1.0, customers=2) == pytest.approx(0.8)


def test_as_many_servers_as_customers_make_nobody_wait() -> None:
    assert throughput([Station("a", 1.0, 2)], delay_seconds=1.0, customers=2) == pytest.approx(1.0)


def test_three_customers_at_two_servers() -> None:
    # The chain of those at the station, Z = D = 1: up at rates 3, 2, 1, down at rates 1, 2, 2.
    # Its shares are as 1, 3, 3, 1.5, so that (3 + 2 (3 + 1.5)) / 8.5 are served at a time.
    found = throughput([Station("a", 1.0, 2)], delay_seconds=1.0, customers=3)
    assert found == pytest.approx(12 / 8.5)


def test_five_customers_at_three_servers() -> None:
    # Z = D = 1: up at rates 5 to 1, down at 1, 2, 3, 3, 3; their shares are as 1, 5, 10, 10, 20/3
    # and 20/9, of which 1, 2, 3, 3 and 3 are served.
    weights = [1, 5, 10, 10, 20 / 3, 20 / 9]
    served = sum(w * min(n, 3) for n, w in enumerate(weights))
    found = throughput([Station("a", 1.0, 3)], delay_seconds=1.0, customers=5)
    assert found == pytest.approx(served / sum(weights))


def test_the_slowest_station_is_the_limit() -> None:
    stations = [Station("a", 0.5, 1), Station("b", 3.0, 4), Station("c", 0.1, 1)]
    assert throughput(stations, delay_seconds=1.0, customers=500) == pytest.approx(4 / 3, rel=1e-3)
    assert throughput(stations, delay_seconds=1.0, customers=500) <= 4 / 3


def test_without_stations_all_go_round_at_once() -> None:
    assert throughput([], delay_seconds=0.5, customers=7) == pytest.approx(14.0)
