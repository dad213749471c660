"""The learning curve, from whole and from damaged metrics."""

import json
import threading
from pathlib import Path

import pytest

from learner.report.history import History
from learner.report.learning_curve import draw, draw_within
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


@pytest.mark.parametrize(
    ("seconds", "folder", "reason"),
    [(0.0, "", "longer than 0 s"), (SECONDS, "missing", "FileNotFoundError"), (SECONDS, "", "")],
)
def test_a_picture_that_cannot_be_drawn_in_time_or_saved_is_a_line(
    tmp_path: Path, seconds: float, folder: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = threading.Event()
    read = History.read
    if not seconds:
        monkeypatch.setattr(History, "read", lambda self, path: goes_on.wait() and read(self, path))
    png = tmp_path / folder / "curve.png"
    found = draw_within(seconds, tmp_path / "none.jsonl", png, title="", target=475.0)
    assert reason in found and bool(reason) == bool(found)
    assert png.exists() != bool(reason)
    goes_on.set()
