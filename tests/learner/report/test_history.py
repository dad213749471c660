import itertools
import json
from pathlib import Path
from typing import Any

from learner.report.history import MOST_ROWS, History, draw


def metrics(steps: float, **fields: Any) -> bytes:
    return json.dumps({"kind": "metrics", "env_steps": steps, **fields}).encode()


def evaluation(steps: int, mean: float | None) -> bytes:
    fields = {"kind": "evaluation", "env_steps": steps, "mean_return": mean}
    return json.dumps({"elapsed_seconds": 1.0, "ended_env_steps": 99, **fields}).encode()


def test_a_name_that_comes_later_is_null_before() -> None:
    history = History()
    assert history.add([metrics(1, loss=0.5)]) == ({"env_steps": [1.0], "loss": [0.5]}, [])
    later = history.add([metrics(2, q=3.0)])
    assert later == ({"env_steps": [2.0], "loss": [None], "q": [3.0]}, [])
    assert history.columns() == {"env_steps": [1.0, 2.0], "loss": [0.5, None], "q": [None, 3.0]}


def test_what_is_no_line_of_metrics_is_passed_over() -> None:
    history = History()
    torn, deep = b'{"kind": "metrics", "env_st', b"[" * 100_000
    infinite = b'{"kind": "metrics", "env_steps": 1e999}'
    huge = b'{"kind": "metrics", "env_steps": 4, "updates": 1%s}' % (b"0" * 400)
    lines = [torn, deep, infinite, huge, b"\xff", b"[1]", b"{}", evaluation(1, None), metrics(5)]
    added = history.add([*lines, b'{"kind": "metrics"}'])
    assert added == ({"env_steps": [4.0, 5.0]}, [])


def test_rows_that_a_run_did_not_resume_from_go() -> None:
    history = History()
    history.add([metrics(1), evaluation(2, 7.0), metrics(3), evaluation(4, 8.0), metrics(5)])
    assert history.add([metrics(3.5)]) is None
    assert history.columns()["env_steps"] == [1, 3, 3.5]
    assert [found["mean_return"] for found in history.rounds] == [7.0]
    # At the start of a session, too.
    session = {"kind": "session", "env_steps": 3}
    assert history.add([json.dumps(session).encode(), metrics(6)]) is None
    assert history.columns()["env_steps"] == [1, 3, 6]
    for apart in ("is_begun_anew", "is_other_environment"):
        history.add([metrics(7), evaluation(7, 9.0)])
        assert history.add([json.dumps({**session, "env_steps": 8, apart: True}).encode()]) is None
        assert history.columns() == {"env_steps": []} and not history.rounds


def test_a_long_run_keeps_its_shape_and_its_last_line_in_bounded_memory() -> None:
    live, later = History(), History()
    lines = [metrics(step, loss=step / 10) for step in range(1, 4 * MOST_ROWS + 4)]
    for line in lines:
        live.add([line])
    later.add(lines)
    for history in (live, later):
        steps = history.columns()["env_steps"]
        assert MOST_ROWS / 2 <= len(steps) <= 2 * MOST_ROWS
        gaps = {b - a for a, b in itertools.pairwise(steps) if a and b}
        assert len(gaps) == 1
        assert history.latest["env_steps"] == 4 * MOST_ROWS + 3


def test_a_picture_is_drawn_of_whatever_lines_there_are(tmp_path: Path) -> None:
    returns = {"return/training": 1.5, "return/training_min": 0.5, "return/training_max": 4.0}
    lines = [
        metrics(10, **returns),
        metrics(20, **returns),
        evaluation(10, 9e9).replace(b"ended_env_steps", b"old"),
        b'{"kind": "metrics", "env_st',
        metrics(20, **{"return/training": None}),
        evaluation(15, 3.0),
        evaluation(20, 4.0),
    ]
    path, png = tmp_path / "metrics.jsonl", tmp_path / "curve.png"
    path.write_bytes(b"\n".join([*lines, b""]))
    draw(path, png, title="cartpole_r2d2, seed 7", target=475.0)
    assert png.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
