"""Rows: a figure beside its limit, and whether it is good enough."""

import json

import pytest

from learner.bench.measure import report
from learner.bench.measure.interleave import Pace, Spread
from learner.bench.measure.result import Conditions, Result, conditions
from learner.bench.rigs import workloads


def result(**fields: object) -> Result:
    ordinary = {
        "name": "wire: small",
        "unit": "messages/s",
        "limit_name": "bare echo",
        "ours": (1_500.0, 100.0, 900.0),
        "limits": (2_000.0, 200.0, 1_000.0),
        "conditions": Conditions(messages="600 bytes", replay_ratio=0.0),
    }
    return Result(**{**ordinary, **fields})


def test_the_ratio_is_taken_round_by_round() -> None:
    # Not 900 / 1000, the ratio of the medians.
    assert result().ratio == Spread(median=0.75, lowest=0.5, highest=0.9)


@pytest.mark.parametrize(
    ("target", "is_cost", "is_met"),
    [(0.75, False, True), (0.76, False, False), (0.75, True, True), (0.74, True, False)],
)
def test_a_target_is_a_bound_of_the_median(target: float, is_cost: bool, is_met: bool) -> None:
    assert result(target=target, is_cost=is_cost).is_met is is_met


def test_without_a_target_nothing_is_met_or_missed() -> None:
    assert result().is_met is None


def test_rows_as_json_are_complete() -> None:
    given = result(target=0.6, details={"p50 ms": 0.5})
    document = report.to_json([given], {"cores": 2}, Pace(3, 0.5))
    assert json.loads(json.dumps(document)) == {
        "machine": {"cores": 2},
        "pace": {"rounds": 3, "seconds": 0.5},
        "rows": [
            {
                "name": "wire: small",
                "unit": "messages/s",
                "limit_name": "bare echo",
                "ours": {
                    "median": 900.0,
                    "lowest": 100.0,
                    "highest": 1500.0,
                    "rounds": [1500.0, 100.0, 900.0],
                },
                "limit": {
                    "median": 1000.0,
                    "lowest": 200.0,
                    "highest": 2000.0,
                    "rounds": [2000.0, 200.0, 1000.0],
                },
                "ratio": {"median": 0.75, "lowest": 0.5, "highest": 0.9},
                "target": 0.6,
                "is_cost": False,
                "is_met": True,
                "conditions": {
                    "replay_ratio": 0.0,
                    "window": "",
                    "stride": None,
                    "network": "",
                    "batch": "",
                    "messages": "600 bytes",
                    "environments": "",
                },
                "details": {"p50 ms": 0.5},
            }
        ],
    }


def test_conditions_of_a_configuration() -> None:
    assert conditions(workloads.atari().config, environments="Atari") == Conditions(
        replay_ratio=0.75,
        window="40 + 80 + 5",
        stride=40,
        network="nature of 4 frames 512, lstm 512, float32",
        environments="Atari",
    )


def test_a_note_leaves_out_what_plays_no_part() -> None:
    given = result(details={"p50 ms": 0.512, "bytes": 58_777_152})
    assert report.notes([given]) == [
        "wire: small: replay ratio 0.0; messages 600 bytes; p50 ms 0.512; bytes 58.8M"
    ]


def test_the_table_has_a_line_for_each_row() -> None:
    table = report.table([result(target=0.8), result(target=1.0, is_cost=True), result()])
    cells = [list(column.cells) for column in table.columns]
    assert cells[0] == ["wire: small"] * 3
    assert cells[1] == ["900 messages/s"] * 3
    assert cells[2] == ["1k (bare echo)"] * 3
    ratio = "0.75 (0.50..0.90)"
    assert cells[3] == [f"[red]{ratio}[/]", f"[green]{ratio}[/]", f"[none]{ratio}[/]"]
    assert cells[4] == ["≥ 0.8", "≤ 1", ""]


@pytest.mark.parametrize(
    ("value", "text"), [(0.5, "0.5"), (999.0, "999"), (1_234.0, "1.23k"), (7.5e6, "7.5M")]
)
def test_numbers_have_three_digits(value: float, text: str) -> None:
    assert report.number(value) == text
