r"""Our learning curve on Pong beside that of Sample Factory's APPO, as numbers and as a picture.

    python -m tests.benchmarks.peers.pong_curves runs/pong_ppo appo.json \
        --json pong.json --png pong.png

reads the metrics of a run and the file of `tests.benchmarks.peers.pong_appo`, and writes one point
a minute of each: seconds since the start of its process, environment steps, and the mean return of
the last 100 training episodes, with whatever they explore. In the run's metrics these are intervals
of some seconds, of which as many count as have 100 episodes.
"""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import tyro

_EPISODES = 100


class Point(NamedTuple):
    """Of a learning curve.

    Attributes:
      seconds: since the start of the process.
      env_steps: so far.
      mean_return: of the last 100 training episodes, or of all if they are fewer.
    """

    seconds: float
    env_steps: int
    mean_return: float


@dataclass(frozen=True, kw_only=True)
class CurvesOptions:
    """Puts two curves into one file, and one picture.

    Attributes:
      run: folder of the run of `pong_ppo`.
      appo: what `tests.benchmarks.peers.pong_appo` has written.
      json: file for the points.
      png: file for the picture.
      every_seconds: between two points.
    """

    run: Annotated[Path, tyro.conf.Positional]
    appo: Annotated[Path, tyro.conf.Positional]
    json: Path
    png: Path
    every_seconds: float = 60.0


def main() -> int:
    """0."""
    options = tyro.cli(
        CurvesOptions, prog="python -m tests.benchmarks.peers.pong_curves", description=__doc__
    )
    lines = (options.run / "metrics.jsonl").read_text().splitlines()
    theirs = json.loads(options.appo.read_text())
    curves = {
        "seedrl pong_ppo": thinned(of_metrics(map(json.loads, lines)), options.every_seconds),
        "Sample Factory APPO": thinned(of_appo(theirs["points"]), options.every_seconds),
    }
    document = {
        "returns": "mean of the last 100 training episodes",
        "machine": theirs["machine"],
        "flags of Sample Factory": theirs["flags"],
        "curves": {name: [list(point) for point in curve] for name, curve in curves.items()},
    }
    options.json.write_text(json.dumps(document, indent=1) + "\n")
    _draw(curves, options.png)
    return 0


def of_metrics(records: Iterable[Mapping[str, Any]]) -> list[Point]:
    """Of the lines of a run's metrics, where `episodes/training` counts from its beginning on."""
    curve: list[Point] = []
    ended: list[tuple[float, float]] = []  # episodes of an interval, and their mean return
    before = 0.0
    for record in records:
        episodes = float(record.get("episodes/training", before))
        if "return/training" not in record or episodes <= before:
            continue
        ended.append((episodes - before, float(record["return/training"])))
        before = episodes
        while sum(number for number, _ in ended[1:]) >= _EPISODES:
            del ended[0]
        mean = sum(number * each for number, each in ended) / sum(number for number, _ in ended)
        curve.append(
            Point(float(record["elapsed_seconds"]), int(record["env_steps"]), round(mean, 3))
        )
    return curve


def of_appo(points: Iterable[Mapping[str, Any]]) -> list[Point]:
    """Of Sample Factory's, which means the same; before its first episode has ended it has none."""
    return [
        Point(point["seconds"], int(point["steps"]), round(point["return"], 3))
        for point in points
        if point["return"] is not None
    ]


def thinned(curve: Sequence[Point], every_seconds: float) -> list[Point]:
    """The last point before each whole number of `every_seconds`, and the last of all."""
    kept = {int(point.seconds // every_seconds): point for point in curve}
    return list(kept.values())


def _draw(curves: Mapping[str, Sequence[Point]], path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for name, curve in curves.items():
        minutes = [point.seconds / 60 for point in curve]
        axes.plot(minutes, [point.mean_return for point in curve], label=name)
    axes.set(
        title="Pong, 42 x 42, two cores",
        xlabel="minutes since the start of the process",
        ylabel="mean return of the last 100 training episodes",
    )
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    sys.exit(main())
