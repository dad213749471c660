"""Numbers as a person reads them."""

import pytest

from learner.reporting.wording import binding, duration, environments, score


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


def test_times_and_numbers_of_environments() -> None:
    assert duration(3723.9) == "1:02:03"
    assert [environments(number) for number in (1, 2)] == ["1 environment", "2 environments"]


@pytest.mark.parametrize(
    ("acting", "learning", "text"),
    [
        (0.31, 0.01, "environments wait for learning 31% of the time: learning binds"),
        (0.0, 0.5, "learning waits for environments 50% of the time: sampling binds"),
        (0.01, 0.02, "neither waits"),
        (None, 0.02, ""),
    ],
)
def test_who_waits_for_whom_is_said_in_words(
    acting: float | None, learning: float | None, text: str
) -> None:
    shares = {"acting_waits_share": acting, "learning_waits_share": learning}
    assert binding({name: share for name, share in shares.items() if share is not None}) == text
