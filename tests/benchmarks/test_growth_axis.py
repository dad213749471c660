"""Growth of costs, worked by hand."""

import pytest

from learner.bench.measure.interleave import Pace
from learner.bench.measure.result import Conditions
from tests.benchmarks.growth_axis import Axis, interleaved, results

AXIS = Axis("devices", "µs/sequence", Conditions())


def test_each_size_is_compared_with_the_one_before() -> None:
    # Cheaper at first, for what is shared; then twice as dear, though cheaper than the smallest.
    costs = {16: (4.0, 6.0), 1: (10.0, 10.0), 4: (2.0, 3.0)}
    four, sixteen = results(AXIS, costs, watts=7.0)
    assert [four.name, sixteen.name] == ["growth: devices, 4", "growth: devices, 16"]
    assert [four.limit_name, sixteen.limit_name] == ["with 1", "with 4"]
    assert four.ratio.median == pytest.approx(0.25) and four.is_met
    assert sixteen.ratio == (2.0, 2.0, 2.0) and not sixteen.is_met
    assert sixteen.details == {"size": 16, "size before": 4, "ratio to 1": 0.5, "watts": 7.0}


def test_sizes_are_measured_interleaved() -> None:
    order: list[int] = []

    def measure(size: int) -> float:
        order.append(size)
        return size * 1e-6

    works = {size: lambda size=size: measure(size) for size in (1, 2, 3)}
    assert interleaved(works, Pace(2, 0.0)) == {size: pytest.approx((size, size)) for size in works}
    assert order == [1, 2, 3, 3, 2, 1]
