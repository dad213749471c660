from pathlib import Path

import pytest

from learner.cli.main import main
from learner.extras.watch.application import listen


def test_an_address_that_is_taken_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        assert main(["watch", str(tmp_path), "--port", str(port)]) == 75
    assert f"port {port}" in capsys.readouterr().err
