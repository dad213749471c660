"""The table of docs/scaling.md is that of the numbers in docs/results."""

import json

from tests.benchmarks import planned

DOCUMENT = {
    "machine": {
        "cores": 2,
        "processor": "abacus",
        "time": "2026-11-23T01:02:03Z",
        "load_average": 0.25,
        "commit": "0123456789abcdef-dirty",
    },
    "conditions": ", at night",
    "rows": [
        {
            "kind": "sleep",
            "env_servers": 2,
            "predicted_steps": 1_100.0,
            "measured_steps": 1_000.0,
            "predicted_cores": 0.9,
            "measured_cores": 1.0,
            "predicted_batch": 1.0,
            "measured_batch": 1.0,
        }
    ],
}


def test_the_page_has_the_table_of_the_results() -> None:
    page = planned.PAGE.read_text()
    assert planned.with_table(page, json.loads(planned.RESULTS.read_text())) == page
    assert planned.table(DOCUMENT) in planned.with_table(page, DOCUMENT)


def test_a_row_has_both_and_their_ratio() -> None:
    last = planned.table(DOCUMENT).splitlines()[-1]
    assert planned.table(DOCUMENT).startswith(
        "On 2 cores of an abacus, 2026-11-23, load average 0.2, commit 0123456789ab, at night:\n\n|"
    )
    assert last == "| sleep | 2 | 1,100 | 1,000 | 1.10 | 0.90 | 1.00 | 0.90 |"
