"""What the other side says is one short line, whatever it says."""

import pytest

from seedrl.wire.contract import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("vm", "vm"),
        ("Höhle 7", "Höhle 7"),
        ("a\n0:00:01  999,999 steps", "a 0:00:01 999,999 steps"),
        ("\x1b[2J\r\x00\u202egone", "[2J gone"),
        ("x" * 200, "x" * 200),
        ("x" * 10**6, "x" * 199 + "…"),
    ],
)
def test_control_characters_are_blanks_and_long_texts_are_cut(text: str, shown: str) -> None:
    assert printable(text) == shown
