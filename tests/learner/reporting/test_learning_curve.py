"""The learning curve, from whole and from damaged metrics."""

import json
from pathlib import Path

from learner.reporting.learning_curve import draw, points

PNG = b"\x89PNG\r\n\x1a\n"


def write(folder: Path, *lines: str | dict[str, object]) -> Path:
    path = folder / "metrics.jsonl"
    path.write_text("".join(f"{_text(line)}\n" for line in lines))
    return path


def _text(line: str | dict[str, object]) -> str:
    return line if isinstance(line, str) else json.dumps(line)


def test_points_are_returns_at_their_environment_steps(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        {"kind": "metrics", "env_steps": 10, "return/training": 1.5, "return/evaluation": 2},
        {"kind": "metrics", "env_steps": 20, "return/training": 3.5},
    )
    assert points(path, "training") == ([10.0, 20.0], [1.5, 3.5])
    assert points(path, "evaluation") == ([10.0], [2.0])


def test_what_is_damaged_or_missing_is_skipped(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        {"env_steps": 10, "return/training": 1.5},
        '{"env_steps": 20, "return/tra',
        "",
        "[1, 2]",
        {"env_steps": 30, "return/training": None},
        '{"env_steps": 40, "return/training": NaN}',
        {"return/training": 9.0},
        {"kind": "checkpoint", "updates": 3},
        {"env_steps": 50, "return/training": 2.5},
    )
    assert points(path, "training") == ([10.0, 50.0], [1.5, 2.5])


def test_a_picture_is_drawn(tmp_path: Path) -> None:
    path = write(tmp_path, {"env_steps": 10, "return/training": 1.5})
    png = tmp_path / "curve.png"
    draw(path, png)
    assert png.read_bytes().startswith(PNG)


def test_without_metrics_the_axes_are_empty(tmp_path: Path) -> None:
    png = tmp_path / "curve.png"
    draw(tmp_path / "missing.jsonl", png)
    assert png.read_bytes().startswith(PNG)
