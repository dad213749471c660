"""A day goes on after whatever fails, ends in time, and resumes where a call has ended."""

import contextlib
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.accelerator.day import Day, of_status
from tests.accelerator.lab_record import write
from tests.accelerator.stages import DAY, REHEARSAL, Stage, named, stages
from tests.accelerator.wheels import NAMES, locked

ROOT = Path(__file__).parents[2]
# Only what hangs takes so long.
LONG = 1000.0


def code(name: str, text: str, limit_seconds: float = LONG, **others: Any) -> Stage:
    return Stage(name, "facts", (sys.executable, "-c", text), limit_seconds, 0.0, **others)


class Told:
    """A day in a folder, and what it has said."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.lines = folder, list[str]()

    def run(
        self,
        *stages: Stage,
        seconds: float = 3 * LONG,
        grace_seconds: float = LONG,
        until: str = "",
    ) -> list[tuple[str, int, str, str]]:
        """A call that has `seconds`; what has ended: stage, piece, status, detail.

        A stage is at its limit once its log has `until` in it.
        """

        def clock() -> float:
            texts = [log.read_text() for log in (self.folder / "logs").glob("*.log")]
            return time.monotonic() + LONG * sum(bool(until) and until in text for text in texts)

        end = clock() + seconds
        out = self.folder / "out"
        day = Day(
            ROOT,
            self.folder,
            out,
            grace_seconds=grace_seconds,
            say=self.lines.append,
            clock=clock,
        )
        ended = day.run(stages, lambda: end - clock())
        return [(each.stage, each.piece, each.status, each.detail) for each in ended]


@pytest.fixture
def told(tmp_path: Path) -> Told:
    return Told(tmp_path)


def test_a_stage_that_fails_stops_no_other_and_is_tried_once_more(told: Told) -> None:
    bad, good = code("bad", "print('so'); raise SystemExit(3)"), code("good", "print('well')")
    first = [("bad", 1, "failed", "exit code 3, so"), ("good", 1, "done", "well")]
    assert told.run(bad, good) == first
    # Another call knows what has been.
    assert told.run(bad, good) == [("bad", 2, "failed", "exit code 3, so")]
    assert told.run(bad, good) == []
    day = Day(ROOT, told.folder, told.folder / "out", say=lambda text: None)
    assert [each.piece for each in day.run([good], lambda: LONG, also_done=True)] == [2]
    assert [line.split()[:2] for line in told.lines] == [
        ["bad", "failed"],
        ["good", "done"],
        ["bad", "failed"],
    ]


def test_what_nothing_is_installed_for_is_left_and_has_not_failed(told: Told) -> None:
    absent = Stage("absent", "facts", ("/nonexistent/python",), LONG, 0.0)
    assert told.run(absent, absent, absent) == []
    assert set(told.lines) == {
        f"{'absent':22} left: /nonexistent/python is not there (stage install)"
    }


def test_what_has_not_ended_by_its_limit_is_ended_with_all_that_it_has_started(
    told: Told, tmp_path: Path
) -> None:
    deaf = (
        "import signal, subprocess, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        # As `seedrl train` starts its children: in groups of their own.
        "command = [sys.executable, '-c', 'import time; time.sleep(1000)'];"
        "child = subprocess.Popen(command, process_group=0);"
        "print('has begun', child.pid, flush=True); time.sleep(1000)"
    )
    ((_, _, status, detail),) = told.run(code("deaf", deaf), grace_seconds=0.0, until="begun")
    *_, child = (tmp_path / "logs" / "deaf_1.log").read_text().split()
    assert status == "failed"
    assert detail == f"exit code -9, after its limit of 1000 s; has begun {child}"
    with contextlib.suppress(FileNotFoundError):
        assert "(zombie)" in Path(f"/proc/{child}/status").read_text()


def test_pieces_resume_until_there_are_enough(told: Told, tmp_path: Path) -> None:
    """As training does: what gets SIGTERM saves, and ends with 0."""
    steps = tmp_path / "steps"
    saves = (
        "import pathlib, signal, sys, time; file = pathlib.Path(sys.argv[1]);"
        "number = int(file.read_text()) + 1 if file.exists() else 1;"
        "signal.signal(signal.SIGTERM, lambda *_: (file.write_text(str(number)), sys.exit(0)));"
        "print('piece', number, flush=True); time.sleep(1000)"
    )
    stage = Stage("run", "facts", (sys.executable, "-c", saves, str(steps)), LONG, 0.0, pieces=2)
    for piece in (1, 2):
        assert told.run(stage, until="piece") == [("run", piece, "stopped", f"piece {piece}")]
    assert told.run(stage) == []
    assert steps.read_text() == "2"


def test_what_has_pieces_comes_by_turns(told: Told) -> None:
    """A call has time for one: the second one begins where the first has had its piece."""
    saves = (
        "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0));"
        "print('a piece', flush=True); time.sleep(1000)"
    )
    runs = [code(name, saves, pieces=3)._replace(least_seconds=600.0) for name in ("pong", "atari")]
    # Its limit passes with its line, maybe before it has ended.
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    once = code("once", f"{deaf}print('a piece of nothing')")
    for expected in (["once"], ["pong"], ["atari"], ["pong"]):
        ended = told.run(once, *runs, seconds=2.5 * LONG, until="a piece")
        assert [stage for stage, *_ in ended] == expected


def test_a_call_begins_nothing_that_it_has_no_time_for(told: Told) -> None:
    long = code("long", "print('well')")._replace(least_seconds=60.0)
    assert told.run(long, seconds=LONG + 60.0) == []
    assert told.lines == [f"{'long':22} left for another call: it needs 60 s"]
    assert told.run(long) == [("long", 1, "done", "well")]


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("print('....\\n12 passed, 1 skipped in 3.21s')", "12 passed, 1 skipped"),
        (
            "print('=== 2 failed, 1 passed in 0.10s ===\\nother'); raise SystemExit(1)",
            "exit code 1, 2 failed, 1 passed",
        ),
        ("print('no tests ran')", "no tests ran"),
    ],
)
def test_of_tests_the_counts_are_told(told: Told, text: str, detail: str) -> None:
    assert told.run(code("tests", text)._replace(kind="tests"))[0][3] == detail


def _status(**others: Any) -> Mapping[str, Any]:
    return {
        "best_evaluation": None,
        "env_steps": 1234,
        "updates": 56,
        "elapsed_seconds": 7.0,
        "reason": "a signal asked for it",
        **others,
    }


def test_of_training_it_is_told_how_far_it_is() -> None:
    said = of_status(_status(best_evaluation={"mean_return": -20.5}))
    assert said.startswith("1,234 environment steps, 56 updates in 7 s of training, best round -20")
    assert "nothing measured" in of_status(_status())


def test_the_record_names_no_path_of_the_machine(tmp_path: Path) -> None:
    folder, out = tmp_path / "day", tmp_path / "out"
    (folder / "logs").mkdir(parents=True)
    (folder / "logs" / "a_1.log").write_text("one")
    detail = f"{folder}/venv/bin/python: {ROOT}/tests/x.py, /opt/some/where/lib.so | no"
    outcome = {"stage": "a", "piece": 1, "status": "failed", "seconds": 1.0, "detail": detail}
    write(folder, out, [outcome], "abc")
    page = (out / "record.md").read_text()
    assert "| a | 1 | failed | 1.0 | FOLDER/venv/bin/python: CHECKOUT/tests/x.py, …/lib.so" in page
    assert str(tmp_path) not in (out / "record.json").read_text()
    assert json.loads((out / "record.json").read_text())["outcomes"][0]["stage"] == "a"
    assert (out / "logs.tar.gz").stat().st_size > 0


@pytest.mark.parametrize("profile", [DAY, REHEARSAL], ids=["day", "rehearsal"])
def test_every_stage_has_a_name_of_its_own_fits_a_call_and_names_what_exists(
    tmp_path: Path, profile: Any
) -> None:
    every = stages(profile, tmp_path, tmp_path)
    assert len({stage.name for stage in every}) == len(every) > 10
    for stage in every:
        assert 0 < stage.least_seconds <= stage.limit_seconds <= 540.0
        paths = [word for word in stage.command if word.startswith("tests/")]
        assert all((ROOT / path).exists() for path in paths)
    assert [stage.name for stage in named(every, ["pong_r2d2", "facts"])] == ["pong_r2d2", "facts"]
    assert named(every, []) == every


def test_what_travels_is_in_the_lock_for_the_other_python() -> None:
    pairs = list(locked((ROOT / "requirements.lock").read_text()))
    lines = dict(pairs)
    assert len(lines) == len(pairs)  # not those of other Pythons, too
    assert lines.keys() >= NAMES
    assert lines["jax"].startswith("jax==0.12")  # not that of Python 3.11
    assert all(" --hash=sha256:" in line and ";" not in line for line in lines.values())
