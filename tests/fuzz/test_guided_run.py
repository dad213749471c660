"""What libFuzzer says at its end becomes a record's figures."""

from tests.fuzz.guided_run import figures

_SAID = """\
#2706	REDUCE cov: 40 ft: 83 corp: 13/484b lim: 330 exec/s: 0 rss: 194Mb L: 5/330 MS: 1 EraseBytes-
#3150	NEW    cov: 41 ft: 84 corp: 14/479b lim: 330 exec/s: 0 rss: 194Mb L: 7/330 MS: 1 EraseBytes-
stat::number_of_executed_units: 3586
stat::new_units_added:          33
stat::peak_rss_mb:              194
"""


def test_the_last_word_counts() -> None:
    expected = {"inputs": 3586, "edges": 41, "kept": 14, "peak_rss_mib": 194}
    assert figures(_SAID) == expected
    assert figures("it did not start") == dict.fromkeys(expected, 0)
