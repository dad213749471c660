"""Runs as their folders show them, in whatever state they were left."""

import contextlib
import json
import os
import socket
from pathlib import Path
from typing import Any

from learner.checkpoints.run_folder import RunFolder
from learner.checkpoints.run_records import (
    played_rounds,
    read_final_score,
    read_run,
)
from seedrl.run_files import find_runs

NOW = 1_000_000.0
ROUND = {"episodes": 20, "ended_env_steps": 150, "updates": 7, "is_confirmation": False}


def _run(folder: Path, **status: Any) -> Path:
    folder.mkdir(parents=True)
    (folder / "command.txt").write_text("seedrl train cartpole_r2d2\n")
    if status:
        (folder / "status.json").write_text(json.dumps({"time_seconds": NOW - 1, **status}))
    return folder


def test_a_state_follows_from_what_was_written_last(tmp_path: Path) -> None:
    ended: dict[str, Any] = {"state": "finished"}
    for number, (status, state) in enumerate(
        (
            ({"state": "training"}, "running"),
            ({"state": "training", "time_seconds": NOW - 60}, "interrupted"),
            ({**ended, "reason": "all 100 steps taken"}, "finished"),
            ({**ended, "reason": "stopped by SIGTERM"}, "interrupted"),
            ({**ended, "reason": "a thread of the learner died"}, "failed"),
            ({**ended, "reason": "an error: the disk is full"}, "failed"),
            ({**ended, "reason": "the env servers failed: no licence"}, "failed"),
            ({}, "interrupted"),
            ({"state": "stopping", "time_seconds": NOW - 60}, "interrupted"),
        )
    ):
        assert read_run(_run(tmp_path / str(number), **status), now=NOW).state == state


def test_a_learner_of_this_machine_that_was_killed_is_known_at_once(tmp_path: Path) -> None:
    here = {"state": "training", "host": socket.gethostname()}
    run = _run(tmp_path / "run", **here)
    assert read_run(run, now=NOW).state == "running"  # that nobody has a lock says nothing
    with contextlib.closing(RunFolder(run)):
        assert read_run(run, now=NOW).state == "running"
        # It is stopped, or gets no CPU: a second learner would be refused.
        silent = read_run(run, now=NOW + 1_000)
        assert silent.state == "running" and "1,001 s" in silent.reason
    # As the kernel does for a process that dies.
    assert read_run(run, now=NOW).state == "interrupted"
    (run / "status.json").write_text(json.dumps({**here, "time_seconds": NOW, "host": "another"}))
    assert read_run(run, now=NOW).state == "running"


def test_the_last_and_the_best_round_are_those_of_all_sessions(tmp_path: Path) -> None:
    folder = _run(tmp_path / "run", state="training")
    # The second session resumes at step 100: the first one had not saved the parameters of 120.
    lines: list[dict[str, Any]] = [
        {"kind": "session", "env_steps": 0, "is_begun_anew": False},
        {"kind": "evaluation", "mean_return": 476.6, "env_steps": 90, **ROUND},
        {"kind": "evaluation", "mean_return": 500.0, "env_steps": 120, **ROUND},
        {"kind": "session", "env_steps": 100, "is_begun_anew": False},
        {"kind": "evaluation", "mean_return": 467.8, "env_steps": 110, **ROUND},
    ]
    path = folder / "metrics.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    found = read_run(folder, now=NOW)
    assert (found.last, found.best) == (467.8, 476.6)
    # What a resumed session calls the last and the best is of the same rounds.
    assert [played.score.mean_return for played in played_rounds(path)] == [476.6, 467.8]
    for why in ("is_begun_anew", "is_other_environment"):
        again = [*lines[:3], {"kind": "session", "env_steps": 100, why: True}, *lines[3:]]
        path.write_text("".join(f"{json.dumps(line)}\n" for line in again))
        found = read_run(folder, now=NOW)
        assert (found.last, found.best) == (467.8, 467.8)


def test_files_that_somebody_made_up_are_as_if_they_were_missing(tmp_path: Path) -> None:
    for number, (name, text) in enumerate(
        (
            ("status.json", '{"env_steps": "many", "time_seconds": [], "config": 3, "reason": {}}'),
            ("status.json", "[" * 200_000),
            (
                "status.json",
                f'{{"env_steps": 1{"0" * 400}, "config": "\x1b[2J", "updates": 1e999}}',
            ),
            ("final_score.json", '{"mean": "a", "episodes": 1, "updates": 1, "exploration": 0}'),
            ("config.json", '{"config": {"environment": [], "seed": "x"}}'),
            ("metrics.jsonl", '{"kind": "evaluation", "mean_return": "high", "env_steps": null}\n'),
        )
    ):
        folder = _run(tmp_path / str(number))
        (folder / name).write_text(text)
        found = read_run(folder, now=NOW)
        assert (found.seed, found.env_steps, found.best) == (None, 0, None)
        assert found.config.isprintable() and read_final_score(folder) is None


def test_a_fifo_in_place_of_a_file_keeps_nobody_waiting(tmp_path: Path) -> None:
    folder = _run(tmp_path / "run")
    for name in ("status.json", "config.json", "metrics.jsonl", "final_score.json", ".lock"):
        os.mkfifo(folder / name)
    assert read_run(folder, now=NOW).state == "interrupted"
    assert read_final_score(folder) is None


def test_runs_are_found_three_folders_deep_but_not_within_one_another(tmp_path: Path) -> None:
    runs = [_run(tmp_path / name) for name in ("b", "a/2", "a/1", "c/d/e")]
    for other in ("b/inner", "c/d/f/g"):
        _run(tmp_path / other)
    (tmp_path / "link").symlink_to(runs[0])
    # Of a warm start, or of published weights.
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "config.json").write_text("{}")
    assert list(find_runs(tmp_path)) == sorted(runs)
    assert list(find_runs(runs[0])) == [runs[0]]
