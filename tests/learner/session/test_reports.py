"""Reports of a run: what it starts from, and its picture at the end."""

import contextlib
import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from learner.saving.run_folder import RunFolder
from learner.session.reports import Reports
from seedrl import config_io
from seedrl.checkpoints import Checkpoint
from tests.learner.reporting.listener import Heard
from tests.patience import SECONDS


def test_a_session_reports_what_it_starts_from(tmp_path: Path) -> None:
    heard: Any = Heard()
    nobody: Any = None
    reports = Reports(nobody, nobody, heard, nobody)
    for meta in ({}, {"replay_indices": [{}]}):
        reports.resumed(Checkpoint(4540, tmp_path, {"env_steps": 90_000, **meta}))
    best = Checkpoint(3, tmp_path, {"evaluation": {"mean_return": 7.5, "episodes": 20}})
    reports.starts_with(best)
    reports.resumed(None)
    reports.starts_with(None)
    empty, restored, initialized = heard.take()
    assert {event.kind for event in (empty, restored, initialized)} == {"resumed"}
    assert "replay starts empty" in empty.text and "its replay is restored" in restored.text
    assert (empty.fields["updates"], empty.fields["env_steps"]) == (4540, 90_000)
    assert "best parameters (7.5" in initialized.text


@pytest.mark.parametrize("is_wanted", [True, False])
def test_a_picture_that_cannot_be_drawn_costs_a_line_and_is_not_tried_unless_wanted(
    tmp_path: Path, is_wanted: bool
) -> None:
    (tmp_path / "learning_curve.png").mkdir()
    lines: list[str] = []
    progress: Any = SimpleNamespace(log=lines.append)
    live: Any = SimpleNamespace(name="some")
    nobody: Any = None
    config = config_io.load("cartpole_r2d2")
    logging = dataclasses.replace(config.logging, learning_curve=is_wanted)
    config = dataclasses.replace(config, logging=logging)
    with contextlib.closing(RunFolder(tmp_path)) as folder:
        Reports(progress, nobody, nobody, live).draw_curve(config, folder, SECONDS)
    expected = "cannot draw the learning curve: IsADirectoryError"
    assert [line[: len(expected)] for line in lines] == [expected] * is_wanted
