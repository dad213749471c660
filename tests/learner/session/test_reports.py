"""What a run says of where it begins."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from learner.session.reports import Reports
from seedrl.storage.checkpoints import Checkpoint


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
