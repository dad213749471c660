"""What a soak says of memory is the slope of one process's, whatever others began with."""

from pathlib import Path

import pytest

from tests.soak.figures import Sample, Slope, range_of, records, slope


def _samples(pid: int, level: float, per_hour: float, noise: float = 0.0) -> list[Sample]:
    return [
        Sample(pid, second, second, level + per_hour * second / 3600 + noise * (-1) ** second, 9, 5)
        for second in range(60)
    ]


def test_each_process_has_a_level_of_its_own() -> None:
    assert slope(_samples(1, 200.0, 12.0) + _samples(2, 500.0, 12.0)) == Slope(12.0, 0.0)


def test_what_jumps_about_has_an_error() -> None:
    found = slope(_samples(1, 200.0, 0.0, noise=1.0))
    assert found is not None
    assert abs(found.per_hour) < 2 * found.error and found.error == pytest.approx(27, abs=2)


def test_too_few_samples_have_no_slope() -> None:
    assert slope([]) is None
    assert slope(_samples(1, 1.0, 1.0)[:3]) is None


def test_what_must_stay_flat_is_told_by_three_numbers() -> None:
    assert range_of([7, 9, 8]) == {"first": 7, "last": 8, "max": 9}
    assert range_of([]) == {}


def test_lines_that_were_cut_are_passed_over(tmp_path: Path) -> None:
    lines = ['{"kind": "metrics", "a": 1}', "", '{"kind": "met', '{"kind": "ledger"}', '{"kin']
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines))
    assert records(tmp_path) == [{"kind": "metrics", "a": 1}]
    assert records(tmp_path, "ledger") == [{"kind": "ledger"}]
    assert records(tmp_path / "absent") == []
