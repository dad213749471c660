"""Numbers as a person reads them."""

import pytest

from learner.report.wording import score


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.95, "0.950"),
        (1.0, "1.000"),
        (-0.7, "-0.700"),
        (9.9994, "9.999"),
        (21.35, "21.35"),
        (475.25, "475.2"),
        (12345.6, "12,346"),
        (0.0, "0.000"),
        (6.0e39, "6e+39"),
        (float("nan"), "nan"),
    ],
)
def test_a_return_has_four_digits_that_count(value: float, text: str) -> None:
    assert score(value) == text
