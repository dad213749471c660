"""The pictures of two programs side by side can be drawn from the records in docs."""

from pathlib import Path

import pytest

from tests.tools.curves import ROOT, race


@pytest.mark.parametrize("record", ["peers_pong.json", "learning/breakout.json"])
def test_a_race_is_drawn_from_its_record(record: str, tmp_path: Path) -> None:
    race(ROOT / "docs" / "results" / record, tmp_path / "race.png")
    assert (tmp_path / "race.png").stat().st_size > 0
