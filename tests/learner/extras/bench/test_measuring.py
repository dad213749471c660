"""The arithmetic of benchmarks, worked by hand, and what a result is."""

import json

from learner.extras.bench.measuring import (
    Result,
    Spread,
    interleave,
    rate,
    serial,
)


def test_things_are_measured_in_turn_and_every_other_round_backwards() -> None:
    order: list[str] = []
    values = iter(range(1, 10))

    def measure(name: str) -> float:
        order.append(name)
        return next(values)

    measured = interleave({name: lambda n=name: measure(n) for name in "abc"}, rounds=3)
    assert order == ["a", "b", "c", "c", "b", "a", "a", "b", "c"]
    assert measured == {"a": (1, 6, 7), "b": (2, 5, 8), "c": (3, 4, 9)}


def test_a_rate_is_the_amount_over_the_time_that_it_took() -> None:
    times = iter([100.0, 100.4, 100.8, 101.25])
    # Three pieces of work of 5, in 1.25 seconds: the one that is begun is finished.
    assert rate(lambda: 5, 1.0, clock=lambda: next(times)) == 12.0
    assert serial(3.0, 6.0) == 2.0


def test_a_result_in_a_table_a_line_and_json() -> None:
    found = Result(
        name="wire: small",
        unit="messages/s",
        limit_name="bare echo",
        ours=(1_500.0, 100.0, 900.0),
        limits=(2_000.0, 200.0, 1_000.0),
        conditions={"messages": "600 bytes"},
        details={"p50 ms": 0.512},
        target=0.8,
    )
    # The ratio of each round, of which only the two numbers saw the same machine; not 900 / 1000,
    # the ratio of the medians.
    assert found.ratio == Spread(median=0.75, lowest=0.5, highest=0.9)
    ours, limit, ratio = "900 messages/s", "1,000 (bare echo)", "0.75 (0.50..0.90)"
    assert found.cells() == ("wire: small", ours, limit, ratio, "≥ 0.8")
    assert found.note() == "wire: small: messages 600 bytes; p50 ms 0.512"
    row = json.loads(json.dumps(found.to_json()))
    assert row["ours"]["rounds"] == [1500.0, 100.0, 900.0] and row["limit"]["median"] == 1000.0
