"""Flags by name: where they lead, what is no flag, and what they change."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from learner.cli import flags
from seedrl import config_io
from seedrl.errors import ConfigError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pair:
    low: int = 0
    high: int = 1
    is_open: bool = False

    def __post_init__(self) -> None:
        if self.low >= self.high:
            raise ValueError("low must be below high")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tree:
    pair: Any = dataclasses.field(default_factory=Pair)
    folder: Path | None = None
    names: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    workdir: Path
    max_size: int = 3


def test_each_leaf_of_a_tree_has_a_flag() -> None:
    known = flags.of_fields(Tree())
    assert list(known) == ["--pair.low", "--pair.high", "--pair.is-open", "--folder", "--names"]
    assert known["--pair.is-open"] == (Pair, ("pair", "is_open"), False)


def test_an_option_without_a_default_is_known_as_such() -> None:
    known = flags.of_options(Options)
    assert known["--workdir"].default is dataclasses.MISSING
    assert known["--max-size"].default == 3


def test_given_flags_are_found_in_all_their_forms() -> None:
    known = flags.of_fields(Tree())
    words = ["--pair.low=3", "x", "--pair.no_is_open", "--names", "a", "b", "--pair.low", "-4"]
    assert flags.given(words, known) == ["--pair.low", "--pair.is-open", "--names", "--pair.low"]


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("--pair.lwo=1", "unknown option --pair.lwo=1; did you mean --pair.low?"),
        ("--pair.no-low", "unknown option --pair.no-low; did you mean --pair.low?"),
        ("--high", "unknown option --high; did you mean --pair.high?"),
        ("--qwertyuiop", "unknown option --qwertyuiop"),
    ],
)
def test_what_is_no_flag_is_told_with_the_one_that_may_be_meant(word: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        flags.given([word], flags.of_fields(Tree()))
    assert str(caught.value) == message


def test_values_reach_their_fields_together() -> None:
    tree = Tree()
    both = {("pair", "low"): 5, ("pair", "high"): 6, ("names",): ["a"]}
    # One after the other they would break the rule of a pair on the way.
    assert flags.with_values(tree, both) == Tree(pair=Pair(low=5, high=6), names=["a"])
    assert tree == Tree()
    assert flags.with_values(tree, {}) is tree
    with pytest.raises(ValueError, match="low must be below high"):
        flags.with_values(tree, {("pair", "low"): 5})


def test_every_field_of_a_bundled_config_has_one_flag() -> None:
    known = flags.of_fields(config_io.load("cartpole_r2d2"))
    assert "--agent.network.torso-sizes" in known and "--agent.network" not in known
    assert len({flag.path for flag in known.values()}) == len(known) > 50


def test_a_quick_copy_has_the_same_flags_and_reads_its_help_where_the_original_stands() -> None:
    copy = flags.quick(Options)
    assert flags.of_options(copy).keys() == flags.of_options(Options).keys()
    assert (copy.__doc__, copy.__module__) == (Options.__doc__, Options.__module__)
    assert vars(copy(workdir=Path("x"))) == vars(Options(workdir=Path("x")))


def test_what_is_parsed_of_unions_does_not_import_typeguard() -> None:
    # Half of the time that a command line takes.
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from learner.cli.arguments import parse\n"
        "from learner.cli.train import TrainOptions\n"
        "words = 'cartpole_r2d2 --workdir w --evaluation.target-return 3'.split()\n"
        "assert parse(TrainOptions, words, prog='x').options.workdir == Path('w')\n"
        "try: parse(TrainOptions, ['--help'], prog='x')\n"
        "except SystemExit: print('typeguard' in sys.modules)\n"
    )
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.endswith("False\n"), done.stderr
