"""What a run says of where it begins."""

import contextlib
import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from learner.saving.run_folder import RunFolder
from learner.session.reports import Reports
from seedrl import config_file
from seedrl.checkpoints import Checkpoint
from tests.patience import SECONDS


def test_a_run_that_resumes_says_whether_replay_does(tmp_path: Path) -> None:
    said: list[str] = []
    events: Any = SimpleNamespace(say=lambda kind, text, **fields: said.append(text))
    nobody: Any = None
    reports = Reports(nobody, nobody, events, nobody)
    for meta in ({}, {"replay_indices": [{}]}):
        reports.resumed(Checkpoint(4540, tmp_path, {"env_steps": 90_000, **meta}))
    begins_empty, has_replay = said
    resumes = (
        f"resumes from update 4,540 and 90,000 environment steps, saved 0:00:00 ago in {tmp_path}"
    )
    assert has_replay == f"{resumes}; its replay is restored"
    assert begins_empty == f"{resumes}; replay begins empty (--checkpoint-replay saves it too)"


def test_a_run_names_the_checkpoint_whose_parameters_it_begins_with() -> None:
    said: list[Any] = []
    events: Any = SimpleNamespace(say=lambda kind, text, **fields: said.append((kind, text)))
    nobody: Any = None
    reports = Reports(nobody, nobody, events, nobody)
    reports.begins_with(None)
    reports.begins_with(Checkpoint(4540, Path("c/checkpoints/000000004540"), {}))
    best = {"evaluation": {"mean_return": 7.5, "episodes": 20}}
    reports.begins_with(Checkpoint(3, Path("c/checkpoints/best/000000000003"), best))
    assert said == [
        (
            "initialized",
            "begins with the parameters of update 4,540 in c/checkpoints/000000004540",
        ),
        (
            "initialized",
            "begins with the best parameters, 7.5 after 3 updates, in "
            "c/checkpoints/best/000000000003",
        ),
    ]


@pytest.mark.parametrize("is_wanted", [True, False])
def test_a_picture_that_cannot_be_drawn_costs_a_line_and_is_not_tried_unless_wanted(
    tmp_path: Path, is_wanted: bool
) -> None:
    (tmp_path / "learning_curve.png").mkdir()
    lines: list[str] = []
    progress: Any = SimpleNamespace(log=lines.append)
    live: Any = SimpleNamespace(name="some")
    nobody: Any = None
    config = config_file.load("cartpole_r2d2")
    logging = dataclasses.replace(config.logging, learning_curve=is_wanted)
    config = dataclasses.replace(config, logging=logging)
    with contextlib.closing(RunFolder(tmp_path)) as folder:
        Reports(progress, nobody, nobody, live).draw_curve(config, folder, SECONDS)
    expected = "cannot draw the learning curve: IsADirectoryError"
    assert [line[: len(expected)] for line in lines] == [expected] * is_wanted
