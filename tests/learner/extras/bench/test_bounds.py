"""The arithmetic of a run's bounds; how its sides are measured: test_system.py."""

import pytest

from learner.cli.bounds import text
from learner.extras.bench.bounds import rates
from learner.extras.bench.system import Interval


@pytest.mark.parametrize(
    ("acting", "learning", "both", "sentence"),
    [
        (6.0, 3.0, 2.4, "Learning binds: the run reaches 80% of the slower side."),
        (3.0, 6.0, 1.5, "Acting binds: the run reaches 50% of the slower side."),
        (4.0, 4.2, 4.0, "Acting and learning bind alike: the run reaches 100% of the slower side."),
    ],
)
def test_the_slower_side_binds(acting: float, learning: float, both: float, sentence: str) -> None:
    # The second round is of a machine half as fast: each round is compared with itself.
    def interval(rate: float, slow: int) -> Interval:
        return Interval(round(1000 * rate), round(125 * rate), slow * 1000.0, {})

    measured = {"acting": acting, "learning": learning, "both": both}
    intervals = {side: [interval(rate, slow) for slow in (1, 2)] for side, rate in measured.items()}
    found = rates(intervals, update_steps=8.0)
    assert found["both"] == pytest.approx((both, both / 2))
    assert found["learning"] == pytest.approx((learning, learning / 2))
    *_, last = text(found, 8.0).splitlines()
    assert last == sentence
