"""Command lines: values of every type, and mistakes that are one line."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from seedrl.errors import ConfigError
from seedrl.programs.command_line import read
from seedrl.programs.flags import POSITIONAL, Mark


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a test.

    Attributes:
      folder: some folder.
      max_size: some number.
    """

    folder: Annotated[Path, POSITIONAL]
    max_size: int = 3
    rate: float = 0.5
    is_on: bool = True
    mode: Literal["a", "b"] = "a"
    limit: float | None = None
    names: tuple[str, ...] | None = None
    host: Annotated[tuple[str, ...], Mark(action="append")] = ()
    allow: Annotated[tuple[str, ...], Mark(action="extend")] = ()
    table: dict[str, int] | None = None

    def __post_init__(self) -> None:
        if self.max_size < 1:
            raise ValueError(f"--max-size: expected at least 1, got {self.max_size}")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("f", {}),
        ("f --max_size=4", {"max_size": 4}),
        ("--max-size 1e5 f", {"max_size": 100_000}),
        ("f --rate 3", {"rate": 3.0}),
        ("f --rate=-1e-3", {"rate": -0.001}),
        ("f --rate -1e-3", {"rate": -0.001}),
        ("f --rate -.5E+2", {"rate": -50.0}),
        ("f --no-is-on", {"is_on": False}),
        ("--is-on f --mode b", {"mode": "b"}),
        ("f --limit None", {}),
        ("f --limit 2", {"limit": 2.0}),
        ("f --names a b --names", {"names": ()}),
        ("f --names a b", {"names": ("a", "b")}),
        ("--host a --host b f", {"host": ("a", "b")}),
        ("f --allow a b --allow c", {"allow": ("a", "b", "c")}),
        ("f --rate 1 --rate 2", {"rate": 2.0}),
    ],
)
def test_a_command_line_is_read(words: str, expected: dict[str, Any]) -> None:
    assert read(Options, words.split(), prog="test") == Options(folder=Path("f"), **expected)


@dataclass(frozen=True, kw_only=True)
class OptionalFolder:
    """Options of a test.

    Attributes:
      folder: some folder.
      is_on: some flag.
    """

    folder: Annotated[Path, POSITIONAL] = Path("runs")
    is_on: bool = False


@pytest.mark.parametrize("words", ["", "--is-on"])
def test_a_positional_argument_may_be_left_out(words: str) -> None:
    assert read(OptionalFolder, words.split(), prog="test").folder == Path("runs")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("", "FOLDER"),
        ("f g", "g"),
        ("f --folder g", "unknown option --folder;"),
        ("f --max-size many", "--max-size"),
        ("f --max-size 0", "--max-size"),
        ("f --mode c", "--mode: expected a or b"),
        ("f --rate nan", "--rate"),
        ("f --limit inf", "--limit"),
        ("f --table 3", "--table"),
        ("--max-siz 3", "did you mean --max-size?"),  # not that FOLDER is missing
    ],
)
def test_a_mistake_is_one_line_that_says_where_to_look(words: str, named: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(Options, words.split(), prog="test")
    line = str(caught.value)
    assert named in line and line.endswith(" (see test --help)") and "\n" not in line
