"""Command lines: what is wrong with one is a line that says where to look."""

from dataclasses import dataclass
from typing import Annotated

import pytest
import tyro

from seedrl.errors import ConfigError
from seedrl.programs import command_line
from seedrl.programs.command_line import print_version_if_asked, read


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a test.

    Attributes:
      folder: some folder.
      max_size: some number.
    """

    folder: Annotated[str, tyro.conf.Positional]
    max_size: int = 3

    def __post_init__(self) -> None:
        if self.max_size < 1:
            raise ValueError(f"--max-size: expected at least 1, got {self.max_size}")


def test_a_command_line_is_read() -> None:
    assert read(Options, ["f", "--max_size=4"], prog="test") == Options(folder="f", max_size=4)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "Missing from test: STR some folder. (required)"),
        (["f", "--max-size"], "Missing value for argument '--max-size'."),
        (["f", "--max-sise", "4"], "unknown option --max-sise; did you mean --max-size?"),
        (["f", "g"], "unknown option g"),
        (["f", "--max-size", "many"], "Error parsing --max-size"),
        (["f", "--max-size", "0"], "--max-size: expected at least 1, got 0"),
    ],
)
def test_a_mistake_is_one_line_that_says_where_to_look(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(Options, words, prog="test")
    line = str(caught.value)
    assert line.startswith(message) and line.endswith(" (see test --help)")
    assert "\n" not in line and "│" not in line and "helptext" not in line


def test_a_terminal_without_frames_changes_nothing() -> None:
    box = " Value error  \n ------------ \n  Error parsing --x: no  \n  ------------\n  Help  \n"
    assert command_line._message(box, Options) == "Error parsing --x: no"


def test_the_version_names_the_wire_too(capsys: pytest.CaptureFixture[str]) -> None:
    print_version_if_asked(["x", "--version"])
    with pytest.raises(SystemExit) as end:
        print_version_if_asked(["--version"])
    assert end.value.code == 0
    out = capsys.readouterr().out
    assert out.startswith("seedrl ") and ", wire 2." in out and out.count("\n") == 1
