"""Statistics of few runs: literal examples, and oracles that count or are scipy's."""

import itertools

import numpy as np
import pytest

from learner.evidence.statistics import (
    area_over,
    bootstrap,
    interquartile_mean,
    interval,
    mann_whitney_p,
    probability_of_improvement,
)


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([5.0], 5.0),
        ([1.0, 2.0, 6.0], 3.0),
        ([1.0, 2.0, 3.0, 10.0], 2.5),
        ([100.0, 1.0, 2.0, 3.0, -50.0], 2.0),
        ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 100.0], 4.5),
    ],
)
def test_the_interquartile_mean_cuts_a_quarter_from_each_end(
    scores: list[float], expected: float
) -> None:
    assert interquartile_mean(scores) == expected
    assert interquartile_mean([scores, scores]).tolist() == [expected, expected]


def test_the_probability_of_improvement_counts_ties_half() -> None:
    assert probability_of_improvement([1.0, 2.0, 3.0], [0.0, 2.0]) == (1 + 1.5 + 2) / 6
    assert probability_of_improvement([1.0, 2.0], [3.0]) == 0.0


@pytest.mark.parametrize(("n", "least"), [(3, 1.00), (4, 0.94), (5, 0.84), (8, 0.77), (10, 0.73)])
def test_what_it_takes_to_be_significant_at_five_percent(n: int, least: float) -> None:
    """The published one-sided thresholds of U / n²."""
    others = [float(number) for number in range(n)]
    found = []
    for u in range(n * n * 2 // 3, n * n + 1):
        # Each score of A is above some of B's, u in all: the highest ones above all of them.
        full, rest = divmod(u, n)
        above = [n] * full + [rest] * (full < n) + [0] * (n - full - 1)
        own = [count - 0.5 + place / 100 for place, count in enumerate(sorted(above))]
        assert probability_of_improvement(own, others) * n * n == pytest.approx(u)
        if mann_whitney_p(own, others) <= 0.05:
            found.append(u / n**2)
    assert round(min(found), 2) == least


def test_five_above_five_has_the_least_p_value_that_there_is() -> None:
    assert mann_whitney_p([6, 7, 8, 9, 10], [1, 2, 3, 4, 5]) == 1 / 252


def _counted(a: list[float], b: list[float]) -> float:
    """The definition: of all ways to choose A's scores, those with a U at least as large."""
    both = [*a, *b]
    least = probability_of_improvement(a, b)
    found = []
    for chosen in itertools.combinations(range(len(both)), len(a)):
        rest = [score for place, score in enumerate(both) if place not in chosen]
        found.append(probability_of_improvement([both[p] for p in chosen], rest) >= least - 1e-12)
    return float(np.mean(found))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ([500.0, 500.0, 498.0], [500.0, 480.0, 470.0]),
        ([500.0, 500.0, 500.0], [500.0, 500.0]),
        ([1.0, 4.0, 2.0, 9.0], [3.0, 3.0, 2.0]),
        ([np.inf, 3.0, np.inf], [np.inf, 2.0, 1.0, 1.0]),
    ],
)
def test_p_values_are_exact_with_ties(a: list[float], b: list[float]) -> None:
    assert mann_whitney_p(a, b) == pytest.approx(_counted(a, b))


def test_without_ties_p_values_are_those_of_scipy() -> None:
    """`mannwhitneyu(a, b, alternative="greater", method="exact")` of scipy 1.17."""
    a = [3.1, 9.2, 4.4, 8.0, 7.7, 1.5, 6.3, 9.9, 5.8]
    b = [2.2, 4.9, 3.3, 0.4, 7.0, 6.1]
    assert mann_whitney_p(a, b) == pytest.approx(0.0905094905094905)
    assert probability_of_improvement(a, b) == pytest.approx(39 / 54)


def test_the_bootstrap_resamples_each_sample_alone() -> None:
    # Between two strata of constants nothing varies; resampled together it would.
    low, high = bootstrap([[1.0] * 3, [9.0] * 4], lambda a, b: a.mean(-1) + b.mean(-1))
    assert low == high == 10.0
    # Of two scores the mean is either, or between them: a quarter, a half, a quarter.
    assert interval([[0.0, 1.0]], lambda a: a.mean(-1)) == (0.0, 1.0)
    curves = np.array([[0.0, 5.0], [1.0, 5.0]])  # the second point is certain
    low, high = bootstrap([curves], lambda a: a.mean(-1))
    assert low.tolist() == [0.0, 5.0] and high.tolist() == [1.0, 5.0]


def test_the_interval_of_ten_runs_covers_what_is_published() -> None:
    """.90 of normal scores, for the mean; 400 times: the standard error is .015."""
    scores = np.random.default_rng(0).normal(size=(10, 400))
    low, high = bootstrap([scores], lambda a: a.mean(-1), repetitions=500)
    assert 0.86 < np.mean((low <= 0) & (high >= 0)) < 0.94


def test_the_same_runs_have_the_same_interval() -> None:
    scores = [[3.0, 1.0, 7.0, 2.0, 9.0]]
    assert interval(scores, interquartile_mean) == interval(scores, interquartile_mean)


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        (4.0, (1 * 10 + 2 * 15 + 1 * 20) / 4),
        (10.0, (1 * 10 + 2 * 15 + 7 * 20) / 10),  # level behind the last point
        (2.0, (1 * 10 + 1 * 12.5) / 2),  # cut off in the middle
        (1.0, 10.0),
    ],
)
def test_the_area_is_that_of_a_curve_level_outside(budget: float, expected: float) -> None:
    assert area_over(budget, [1.0, 3.0], [10.0, 20.0]) == pytest.approx(expected)


def test_what_is_beyond_the_budget_is_cut_off() -> None:
    assert area_over(2.0, [1.0, 3.0, 5.0], [10.0, 20.0, 0.0]) == pytest.approx((10 + 12.5) / 2)
