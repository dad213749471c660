"""The learning curves of docs: extracts them from run directories, and draws them.

    python -m tests.tools.curves extract cartpole_ppo runs/a runs/b --commit abc --machine "..."
    python -m tests.tools.curves draw ppo cartpole_ppo lunarlander_ppo
    python -m tests.tools.curves race docs/results/peers_pong.json docs/results/learning/pong.png

`extract` writes docs/results/learning/curves/NAME.json, the runs of one configuration over seeds;
`draw` makes docs/images/curves/PICTURE.png from such files, a panel for each; `race` draws what
`python -m tests.benchmarks.peers pong` or `breakout` has measured.
"""

import argparse
import itertools
import json
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

ROOT = Path(__file__).parents[2]
DATA = ROOT / "docs" / "results" / "learning" / "curves"
PICTURES = ROOT / "docs" / "images" / "curves"


def extract(name: str, folders: list[Path], *, commit: str, machine: str) -> None:
    """Writes the evaluation rounds of these run directories."""
    runs = sorted((_run(folder) for folder in folders), key=lambda run: run["seed"])
    config = json.loads((folders[0] / "config.json").read_text())["config"]
    record = {
        "command": f"seedrl train {name} --seed S",
        "commit": commit,
        "machine": machine,
        "environment": config["environment"]["id"],
        "target_return": config["evaluation"]["target_return"],
        "runs": runs,
    }
    DATA.mkdir(parents=True, exist_ok=True)
    lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in record.items()]
    (DATA / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _run(folder: Path) -> dict[str, Any]:
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    rounds = [line for line in lines if line["kind"] == "evaluation"]
    # A confirmation measures the parameters of its round again, over more episodes.
    scores = {line["env_steps"]: round(line["mean_return"], 2) for line in rounds}
    config = json.loads((folder / "config.json").read_text())["config"]
    return {
        "seed": config["seed"],
        "is_confirmed": rounds[-1]["is_confirmation"]
        and rounds[-1]["mean_return"] >= config["evaluation"]["target_return"],
        "seconds": round(rounds[-1]["elapsed_seconds"], 1),
        "env_steps": list(scores),
        "mean_return": list(scores.values()),
    }


def draw(picture: str, names: list[str]) -> None:
    """Draws mean and range over seeds, and each seed as a thin line that ends with its run."""
    figure, axes = plt.subplots(
        1, len(names), figsize=(4.2 * len(names), 3.0), squeeze=False, layout="constrained"
    )
    for axis, name in zip(axes[0], names, strict=True):
        record = json.loads((DATA / f"{name}.json").read_text())
        runs = record["runs"]
        # A run that ended keeps its last score: it reached its target, or took all its steps.
        last = max(run["env_steps"][-1] for run in runs)
        steps = np.linspace(0, last, 200)
        curves = np.array([np.interp(steps, run["env_steps"], run["mean_return"]) for run in runs])
        axis.fill_between(steps, curves.min(0), curves.max(0), color="#4c78a8", alpha=0.2, lw=0)
        for run in runs:
            axis.plot(run["env_steps"], run["mean_return"], color="#4c78a8", lw=0.6, alpha=0.7)
            axis.plot(run["env_steps"][-1], run["mean_return"][-1], "o", color="#4c78a8", ms=3)
        axis.plot(steps, curves.mean(0), color="#e45756", lw=1.8)
        if record["target_return"] is not None:
            axis.axhline(record["target_return"], color="gray", lw=0.8, ls="--")
        axis.set_title(f"{name}, {len(runs)} seeds", fontsize=10)
        axis.set_xlabel("environment steps")
        axis.ticklabel_format(axis="x", style="sci", scilimits=(0, 0))
    axes[0][0].set_ylabel("evaluation return")
    PICTURES.mkdir(parents=True, exist_ok=True)
    figure.savefig(PICTURES / f"{picture}.png", dpi=110)


def race(record: Path, picture: Path) -> None:
    """Draws both sides over minutes and over environment steps, a line for each seed."""
    row = json.loads(record.read_text())["rows"][0]
    values = {tuple(key.split(", ")): value for key, value in row["details"].items()}
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), sharey=True, layout="constrained")
    sides = (("ours", "seedrl", "C0"), ("theirs", row["limit_name"], "C1"))
    seeds = dict.fromkeys(key[1] for key in values)
    for (side, label, colour), seed in itertools.product(sides, seeds):
        own = (side, seed)
        times = [key[2] for key in values if key[:2] == own and key[3] == "return"]
        returns = [values[*own, time, "return"] for time in times]
        minutes = [float(time.split()[0]) for time in times]
        steps = [values[*own, time, "steps"] / 1e6 for time in times]
        for axis, across in zip(axes, (minutes, steps), strict=True):
            axis.plot(across, returns, color=colour, label=label if seed == "seed 0" else None)
    axes[0].set_xlabel("minutes")
    axes[1].set_xlabel("million environment steps")
    axes[0].set_ylabel("mean return of games")
    axes[0].legend(fontsize=9)
    for axis in axes:
        axis.grid(alpha=0.3)
    figure.savefig(picture, dpi=110)


def main() -> None:
    """Reads the command."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.tools.curves",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    extracting = commands.add_parser("extract")
    extracting.add_argument("name")
    extracting.add_argument("folders", nargs="+", type=Path)
    extracting.add_argument("--commit", required=True)
    extracting.add_argument("--machine", required=True)
    drawing = commands.add_parser("draw")
    drawing.add_argument("picture")
    drawing.add_argument("names", nargs="+")
    racing = commands.add_parser("race")
    racing.add_argument("record", type=Path)
    racing.add_argument("picture", type=Path)
    flags = parser.parse_args()
    if flags.command == "extract":
        extract(flags.name, flags.folders, commit=flags.commit, machine=flags.machine)
    elif flags.command == "draw":
        draw(flags.picture, flags.names)
    else:
        race(flags.record, flags.picture)


if __name__ == "__main__":
    main()
