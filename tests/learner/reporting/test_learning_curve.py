"""The learning curve, from whole and from damaged metrics."""

import json
import sys
from pathlib import Path

import pytest

from learner.reporting.learning_curve import draw, draw_apart
from tests.patience import SECONDS

ROUND = {"kind": "evaluation", "elapsed_seconds": 1.0}
PNG = b"\x89PNG\r\n\x1a\n"


def write(folder: Path, *lines: str | dict[str, object]) -> Path:
    path = folder / "metrics.jsonl"
    path.write_text("".join(f"{_text(line)}\n" for line in lines))
    return path


def _text(line: str | dict[str, object]) -> str:
    return line if isinstance(line, str) else json.dumps(line)


def test_a_picture_shows_episodes_rounds_and_the_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Here, so that only the process that runs this test imports matplotlib.
    from matplotlib.figure import Figure

    figures: list[Figure] = []

    def save(figure: Figure, path: Path, **_: object) -> None:
        figures.append(figure)
        plain(figure, path)

    plain = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", save)
    returns = {"return/training": 1.5, "return/training_min": 0.5, "return/training_max": 4.0}
    path = write(
        tmp_path,
        {"kind": "metrics", "env_steps": 10, **returns},
        {"kind": "metrics", "env_steps": 20, **returns, "return/evaluation": 9e9},
        '{"kind": "metrics", "env_st',
        {"kind": "metrics", "env_steps": 20, "return/training": None},
        {**ROUND, "env_steps": 15, "mean_return": 3.0, "standard_deviation": 1.0},
        {**ROUND, "env_steps": 20, "mean_return": 4.0},
    )
    png = tmp_path / "curve.png"
    draw(path, png, title="cartpole_r2d2, seed 7", target=475.0)
    assert png.read_bytes().startswith(PNG)
    (axes,) = figures[0].axes
    assert axes.get_title() == "cartpole_r2d2, seed 7"
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert sorted(labels) == [
        "evaluation: mean and deviation",
        "target 475",
        "training episodes: mean and extremes",
    ]
    assert [list(line.get_ydata()) for line in axes.get_lines()][:2] == [[1.5, 1.5], [3.0, 4.0]]
    assert axes.dataLim.ymax < 1000


def test_without_metrics_the_axes_are_empty(tmp_path: Path) -> None:
    png = tmp_path / "curve.png"
    draw(tmp_path / "missing.jsonl", png)
    assert png.read_bytes().startswith(PNG)


def test_a_picture_that_would_take_too_long_is_not_drawn(tmp_path: Path) -> None:
    png = tmp_path / "curve.png"
    reason = draw_apart(tmp_path / "missing.jsonl", png, title="", target=475.0, seconds=0.0)
    assert reason == "it would take longer than 0 s"
    assert not png.exists()


def test_a_drawing_process_that_is_killed_leaves_no_picture_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = tmp_path / "python"
    killed.write_text("#!/bin/sh\nkill -9 $$\n")
    killed.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(killed))
    png = tmp_path / "curve.png"
    why = draw_apart(tmp_path / "missing.jsonl", png, title="", target=None, seconds=SECONDS)
    assert "-9" in why
