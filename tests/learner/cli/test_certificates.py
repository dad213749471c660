"""`seedrl certificates`: that they work is seen in tests/learner/serving/test_access.py."""

from pathlib import Path

import pytest

from learner.cli.main import main
from seedrl.wire.credentials import read_token

FILES = {"ca", "learner", "env_server"}


def test_it_makes_what_both_sides_need_and_keeps_its_secrets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "certificates"
    command = ["certificates", str(folder), "--host", "learner.example", "--host", "10.0.0.5"]
    assert main(command) == 0
    made = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert set(made) == {f"{name}.{kind}" for name in FILES for kind in ("pem", "key")} | {"token"}
    assert not [path.name for path in folder.iterdir() if path.stat().st_mode & 0o077]
    said = capsys.readouterr().out
    assert "--serving.certificate" in said and "--authority" in said
    assert read_token(folder / "token") not in said
    # Made again by the same authority; whoever has the token goes on with it.
    assert main(["certificates", str(folder), "--days", "30"]) == 0
    kept = {name for name, content in made.items() if (folder / name).read_bytes() == content}
    assert kept == {"ca.pem", "ca.key", "token"}
    # As after Ctrl-C at its very first file.
    (folder / "ca.pem").unlink()
    assert main(["certificates", str(folder)]) == 2
    assert "ca.*" in capsys.readouterr().err
    (folder / "ca.key").write_text("none")
    assert main(["certificates", str(folder)]) == 2
