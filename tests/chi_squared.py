"""Where the chi-squared distribution ends, for tests of frequencies."""


def exceeded_with(probability: float, degrees_of_freedom: int) -> float:
    """The value that a chi-squared distributed statistic exceeds with this probability."""
    # Every test process would spend a quarter of a second on scipy while it collects tests.
    from scipy.special import chdtri

    return float(chdtri(degrees_of_freedom, probability))
