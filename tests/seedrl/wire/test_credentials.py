"""Files of tokens and certificates that cannot be used."""

import datetime
from pathlib import Path

import pytest

from learner.cli.certificates import make
from seedrl.errors import ConfigError
from seedrl.wire.credentials import Certificates, read_token


@pytest.mark.parametrize(
    "text", ["", "short", "two words of a token", "0123456789abcde\n", "é" * 20]
)
def test_what_is_no_token_is_refused_and_not_quoted(tmp_path: Path, text: str) -> None:
    (tmp_path / "token").write_text(text)
    with pytest.raises(ConfigError) as refused:
        read_token(tmp_path / "token")
    assert not text.strip() or text.strip() not in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="/token"):
        read_token(tmp_path / "token")
    with pytest.raises(ConfigError, match=r"/ca\.pem"):
        Certificates(authority=tmp_path / "ca.pem").of_client()


def test_a_certificate_goes_with_its_own_key(tmp_path: Path) -> None:
    make(tmp_path, (), datetime.timedelta(days=1))
    learner, key, ca = (tmp_path / name for name in ("learner.pem", "learner.key", "ca.pem"))
    assert Certificates(learner, key, ca).of_server() is not None
    assert Certificates(learner, key, ca).of_client() is not None
    assert Certificates().of_server() is Certificates().of_client() is None
    with pytest.raises(ConfigError, match=r"/ca\.key"):
        Certificates(learner, tmp_path / "ca.key").of_server()
    ca.write_text("no certificate")
    with pytest.raises(ConfigError, match=r"/ca\.pem"):
        Certificates(learner, key, ca).of_server()
