"""What a run says of where it begins."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from learner.session.reports import Reports
from seedrl.storage.checkpoints import Checkpoint


def test_a_run_names_the_checkpoint_whose_parameters_it_begins_with() -> None:
    said: list[Any] = []
    events: Any = SimpleNamespace(say=lambda kind, text, **fields: said.append((kind, text)))
    nobody: Any = None
    reports = Reports(nobody, nobody, events, nobody)
    reports.begins_with(None)
    reports.begins_with(Checkpoint(4540, Path("c/checkpoints/000000004540"), {}))
    assert said == [
        (
            "initialized",
            "begins with the parameters of update 4,540 in c/checkpoints/000000004540",
        )
    ]
