"""Plots of growth: `python -m tests.benchmarks.plots BENCH.json docs/results`.

One file for each figure, `growth_*.svg`: the cost of a unit of work by size, lowest to highest of
the rounds. What is compared with a reading of all priorities has that as a second line.
"""

import json
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

PREFIX = "growth: "


def figures(document: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The results of each figure of growth, by its name, smallest size first."""
    found = defaultdict(list)
    for row in document["rows"]:
        if row["name"].startswith(PREFIX):
            name = row["name"].removeprefix(PREFIX).rsplit(", ", 1)[0]
            found[name].append(row)
    return {
        name: sorted(rows, key=lambda row: row["details"]["size"]) for name, rows in found.items()
    }


def draw(name: str, rows: list[dict[str, Any]], path: Path) -> None:
    """Writes the plot of one figure."""
    # Slow to import, and not only for who draws: pytest imports all that it collects.
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(4.5, 3.2), layout="constrained")
    sizes = [row["details"]["size"] for row in rows]
    # The size before that of a row is in its limit; beside a reading both lines begin at 1.
    is_beside_reading = rows[0]["unit"].startswith("times")
    one = {"median": 1.0, "lowest": 1.0, "highest": 1.0}
    first = one if is_beside_reading else rows[0]["limit"]
    sizes = [rows[0]["details"]["size before"], *sizes]
    _line(axes, sizes, [first, *(row["ours"] for row in rows)], name)
    if is_beside_reading:
        _line(axes, sizes, [one, *(row["limit"] for row in rows)], rows[0]["limit_name"])
        axes.legend()
    axes.set(xscale="log", xlabel=name, ylabel=rows[0]["unit"], ylim=(0, None))
    axes.set_xticks(sizes, [f"{size:,.0f}" for size in sizes], rotation=30)
    axes.minorticks_off()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _line(axes: Any, sizes: list[float], spreads: list[dict[str, float]], label: str) -> None:
    medians = [each["median"] for each in spreads]
    below = [each["median"] - each["lowest"] for each in spreads]
    above = [each["highest"] - each["median"] for each in spreads]
    axes.errorbar(sizes, medians, yerr=(below, above), marker="o", capsize=3, label=label)


def main() -> None:
    """Draws all figures of a benchmark's JSON into a folder."""
    from matplotlib import pyplot as plt

    source, folder = map(Path, sys.argv[1:])
    plt.switch_backend("Agg")
    plt.rcParams["svg.hashsalt"] = "seedrl"
    for name, rows in figures(json.loads(source.read_text())).items():
        slug = re.sub(r"\W+", "_", name)
        draw(name, rows, folder / f"growth_{slug}.svg")


if __name__ == "__main__":
    main()
