"""Draws reuse_publish.png from reuse_publish.jsonl, both beside this file."""

import json
import re
from collections import defaultdict
from pathlib import Path
from statistics import mean

import matplotlib
import numpy as np

matplotlib.use("agg")
from matplotlib import pyplot as plt

FOLDER = Path(__file__).parent
cells = defaultdict(list)
for line in (FOLDER / "reuse_publish.jsonl").read_text().splitlines():
    run = json.loads(line)
    ratio, publish = re.findall(r"=(\d+)__", run["run"])[:2]
    numbers = (run["evaluations"][-1][1], run["policy_lag_updates"], run["serving_lag_updates"])
    cells[int(ratio), int(publish)].append(numbers)
ratios, publishes = (sorted({cell[axis] for cell in cells}) for axis in (0, 1))
figure, panels = plt.subplots(1, 3, figsize=(13, 3.6), layout="constrained")
titles = ("final return", "policy lag of trained steps, in updates", "lag when acting, in updates")
for number, (axes, title) in enumerate(zip(panels, titles, strict=True)):
    values = np.array(
        [[mean(each[number] for each in cells[r, p]) for p in publishes] for r in ratios]
    )
    shades = values if number == 0 else np.log(values)
    axes.imshow(shades, cmap="YlGn", aspect="auto", origin="lower")
    for (row, column), value in np.ndenumerate(values):
        axes.text(column, row, f"{value:.3g}", ha="center", va="center")
    axes.set_xticks(range(len(publishes)), map(str, publishes))
    axes.set_yticks(range(len(ratios)), map(str, ratios))
    axes.set(title=title, xlabel="publish interval, in updates", ylabel="replay ratio")
figure.savefig(FOLDER / "reuse_publish.png", dpi=80)
