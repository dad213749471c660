"""`seedrl export`: which policy, and where to."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from learner.cli.main import main
from seedrl import policy


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was loaded, by stand-ins of policies."""
    found: list[Any] = []

    def load(workdir: Path, **which: Any) -> Any:
        found.append((workdir, which))
        return SimpleNamespace(export=lambda: b"12345", step=1234)

    monkeypatch.setattr(policy, "load", load)
    return found


def test_the_file_is_in_the_folder_of_the_run_unless_told_otherwise(
    loads: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(tmp_path)]) == 0
    assert (tmp_path / "policy.jax").read_bytes() == b"12345"
    assert capsys.readouterr().out == f"{tmp_path}/policy.jax: 5 bytes, after 1,234 updates\n"
    other = tmp_path / "other"
    assert main(["export", str(tmp_path), "--output", str(other), "--best"]) == 0
    assert other.read_bytes() == b"12345"
    other.write_bytes(b"mine")
    assert main(["export", str(tmp_path), "--output", str(other)]) == 2
    assert other.read_bytes() == b"mine"
    assert main(["export", str(tmp_path), "--output", str(other), "--force"]) == 0
    assert other.read_bytes() == b"12345"
    assert loads == [
        (tmp_path, {"step": None, "best": False, "epsilon": 0.0, "allow": ()}),
        (tmp_path, {"step": None, "best": True, "epsilon": 0.0, "allow": ()}),
        (tmp_path, {"step": None, "best": False, "epsilon": 0.0, "allow": ()}),
    ]


@pytest.mark.usefixtures("loads")
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--best", "--step", "3"), "--step and --best: expected one of them, got both"),
        (("--output", "no/such/folder/x"), "--output: cannot write no/such/folder/x: No such file"),
    ],
)
def test_what_cannot_be_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], message: str
) -> None:
    assert main(["export", str(tmp_path), *flags]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
