"""Two trees on one machine in turn: `python -m tests.benchmarks.pairs OLD NEW NAME... [--flags]`.

OLD and NEW are checkouts; NAME is a benchmark of `seedrl bench` or of `python -m tests.benchmarks`,
whichever the tree has it in. Each round measures both trees, every other one backwards, and the
last table has, for each row that both have, NEW's rate relative to OLD's: the median of the rounds'
ratios, with lowest and highest.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from learner.extras.bench.measuring import ratios, spread
from seedrl.programs.command_line import read
from seedrl.programs.flags import POSITIONAL

Rounds = Mapping[str, Sequence[float]]


def command(tree: Path, name: str) -> list[str]:
    """The command that runs a benchmark in a tree."""
    is_for_developers = (tree / "tests" / "benchmarks" / f"{name}.py").exists()
    module = ["tests.benchmarks"] if is_for_developers else ["learner.cli.main", "bench"]
    return [sys.executable, "-m", *module, name]


def measured(tree: Path, name: str, seconds: float) -> dict[str, float]:
    """One round of a benchmark in a tree, in a process of its own: each row's figure."""
    with tempfile.TemporaryDirectory(prefix="seedrl-pairs-") as folder:
        path = Path(folder) / "bench.json"
        words = [*command(tree, name), "--rounds", "1", "--seconds", str(seconds)]
        # Trees of before 0.1.0 call it otherwise.
        bench = (tree / "learner" / "cli" / "bench.py").read_text()
        output = "--output" if "options.output" in bench else "--json"
        # The path of the tree comes before an editable install's.
        environment = {**os.environ, "PYTHONPATH": str(tree)}
        subprocess.run(
            [*words, output, str(path)],
            cwd=tree,
            env=environment,
            stdout=subprocess.DEVNULL,
            check=True,
        )
        rows = json.loads(path.read_text())["rows"]
    return {row["name"]: row["ours"]["median"] for row in rows}


def table(old: Rounds, new: Rounds) -> list[str]:
    """A line for each row that both trees have: ratio of new to old."""
    lines = []
    for name in (name for name in new if name in old):
        median, lowest, highest = spread(ratios(new[name], old[name]))
        lines.append(f"{median:5.2f} ({lowest:.2f}..{highest:.2f})  {name}")
    return lines


@dataclass(frozen=True, kw_only=True)
class PairsOptions:
    """Measure benchmarks of two trees in turn and print the ratios.

    Attributes:
      old: a checkout.
      new: another one.
      names: benchmarks.
      rounds: repetitions.
      seconds: duration of each measurement.
    """

    old: Annotated[Path, POSITIONAL]
    new: Annotated[Path, POSITIONAL]
    names: Annotated[tuple[str, ...], POSITIONAL]
    rounds: int = 5
    seconds: float = 2.0


def main(options: PairsOptions) -> None:
    old, new = options.old, options.new
    found: dict[Path, dict[str, list[float]]] = {tree: defaultdict(list) for tree in (old, new)}
    for number in range(options.rounds):
        for tree in (old, new) if number % 2 == 0 else (new, old):
            for name in options.names:
                for row, value in measured(tree.resolve(), name, options.seconds).items():
                    found[tree][row].append(value)
        print(*table(found[old], found[new]), f"after {number + 1} rounds", sep="\n")


if __name__ == "__main__":
    main(read(PairsOptions, None, prog="python -m tests.benchmarks.pairs"))
