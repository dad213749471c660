"""`seedrl compare` on folders that are given."""

import json
from pathlib import Path

import pytest

from learner.cli.main import main
from tests.learner.extras.run_folders import write_run


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Three runs that reach 475, and three of another replay ratio of which one does."""
    for seed, final in enumerate((500.0, 480.0, 490.0)):
        write_run(
            tmp_path / "a" / f"s{seed}", [100.0, final], seed=seed, target=475.0, final=final,
            confirmed=final,
        )  # fmt: skip
    for seed, final in enumerate((200.0, 100.0, 480.0)):
        write_run(
            tmp_path / "b" / f"s{seed}", [50.0, final], seed=seed, target=475.0, ratio=1.0,
            confirmed=final,
        )  # fmt: skip
    return tmp_path / "a", tmp_path / "b"


def test_what_is_printed(folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    a, b = folders
    write_run(a / "unplayed", [])
    assert main(["compare", str(a), "--against", str(b)]) == 0
    out, err = capsys.readouterr()
    assert err.startswith("left out: ")
    assert "IQM 490.0 [480.0, 500.0]" in out and "P(A > B) = 0.94 [0.78, 1.00]" in out
    # Runs of the other side are taken out: the folder that holds both may be named.
    assert main(["compare", str(a.parent), "--against", str(b), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [len(each["runs"]) for each in found["groups"]] == [3, 3]
    assert found["groups"][1]["steps"] == [None, None, 250.0]
    ((pair),) = found["pairs"]
    assert (pair["a"], pair["b"]) == ("A", "B")
    assert pair["probability"] == pytest.approx(8.5 / 9)
