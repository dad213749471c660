import importlib.util
from pathlib import Path

import pytest

from learner.cli.main import main
from learner.extras.watch.application import listen


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["{0}/none"], "expected the folder of a run, or of several, got"),
        (["{0}", "--port", "65536"], "--port: expected 0 to 65535, got 65536"),
        (["{0}", "--bind", "0.0.0.0"], "can be reached from other machines"),
    ],
)
def test_wrong_input_is_refused(
    argv: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["watch", *(word.format(tmp_path) for word in argv)]) == 2
    assert message in capsys.readouterr().err


def test_an_address_that_is_taken_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        assert main(["watch", str(tmp_path), "--port", str(port)]) == 75
    assert f"cannot serve on 127.0.0.1 port {port}: Address already in use" in (
        capsys.readouterr().err
    )


def test_a_missing_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert main(["watch", str(tmp_path)]) == 2
    assert "pip install 'seedrl[watch]'" in capsys.readouterr().err
