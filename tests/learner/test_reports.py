"""Reports of a run: what it starts from, and its picture at the end."""

from pathlib import Path
from typing import Any

from learner.build import StartFrom
from learner.reports import Reports
from seedrl.checkpoints import Checkpoint
from tests.learner.report.listener import Heard


def test_a_session_reports_what_it_starts_from(tmp_path: Path) -> None:
    heard: Any = Heard()
    nobody: Any = None
    reports = Reports(nobody, nobody, heard, nobody)
    for meta in ({}, {"replay_indices": [{}]}):
        saved = Checkpoint(4540, tmp_path, {"env_steps": 90_000, **meta})
        reports.starts_from(StartFrom(saved))
    best = Checkpoint(3, tmp_path, {"evaluation": {"mean_return": 7.5, "episodes": 20}})
    reports.starts_from(StartFrom(None, best))
    reports.starts_from(StartFrom())
    empty, restored, initialized = heard.take()
    assert {event.kind for event in (empty, restored, initialized)} == {"resumed"}
    assert "replay starts empty" in empty.text and "its replay is restored" in restored.text
    assert (empty.fields["updates"], empty.fields["env_steps"]) == (4540, 90_000)
    assert "best parameters (7.5" in initialized.text
