"""The token of a call's metadata."""

from pathlib import Path

import pytest

from learner.serving.access.token_check import TokenCheck

TOKEN = "0123456789abcdef"


@pytest.fixture
def check(tmp_path: Path) -> TokenCheck:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    return TokenCheck(str(tmp_path / "token"))


def test_the_token_is_shown_once_and_whole(check: TokenCheck) -> None:
    right = ("authorization", f"Bearer {TOKEN}")
    assert check.admits([("user-agent", "x"), right])
    assert check.admits([("authorization", f"Bearer {TOKEN}".encode())])
    for wrong in (TOKEN, f"bearer {TOKEN}", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "Bearer é"):
        assert not check.admits([("authorization", wrong)])
    for several in (None, [], [right, right], [right, ("authorization", "")]):
        assert not check.admits(several)


def test_without_a_token_file_anybody_may_come() -> None:
    assert TokenCheck("").admits(None)
