"""Names of metrics as data."""

import pytest

from learner.reporting.metric_table import METRICS, group, lines


def test_no_name_of_a_line_belongs_to_two_metrics() -> None:
    names = [line for metric in METRICS for line in lines(metric)]
    assert len(names) == len(set(names))


def test_every_metric_has_a_meaning() -> None:
    assert [metric.name for metric in METRICS if not metric.meaning] == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("env_steps_per_second", "balance"),
        ("policy_lag_updates_p95", "balance"),
        ("gradient_norm", "learning"),
        ("entropy", "agent"),
    ],
)
def test_a_line_is_shown_with_its_metric_and_an_unknown_one_with_the_agent(
    line: str, expected: str
) -> None:
    assert group(line) == expected
