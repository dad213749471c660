"""A trace of some updates in the run's folder, whatever becomes of the run."""

from pathlib import Path
from typing import Any

import jax
import pytest

from learner.report.profile import Profile
from tests.learner.report.listener import Heard


def _traced(folder: Path, counts: list[tuple[int, int]]) -> tuple[Any, Heard]:
    heard, now = Heard(), 0
    profile = Profile(folder, 20, count=lambda: now, listener=heard)
    for count in counts:
        now = sum(count)
        profile.update()
        jax.block_until_ready(jax.numpy.ones(2) + 1)
    return profile, heard


@pytest.mark.parametrize("counts", [[(0, 0), (9, 1), (29, 1)], [(12, 0), (20, 0)]])
def test_updates_after_the_warm_up_are_traced_once(
    tmp_path: Path, counts: list[tuple[int, int]]
) -> None:
    folder = tmp_path / "profile"
    profile, heard = _traced(folder, counts)
    profile.close()
    profile.update()
    profile.close()
    (event,) = heard.take()
    (file,) = folder.rglob("*.trace.json.gz")
    assert str(file) in event.text and not event.is_problem
    assert event.fields["updates"] == sum(counts[-1]) - sum(counts[-2])


def test_a_run_that_ends_before_its_trace_says_so(tmp_path: Path) -> None:
    profile, heard = _traced(tmp_path / "profile", [(9, 0)])
    profile.close()
    (event,) = heard.take()
    assert event.is_problem and not (tmp_path / "profile").exists()


def test_a_folder_that_cannot_be_written_costs_the_trace_only(tmp_path: Path) -> None:
    (tmp_path / "profile").write_text("")
    profile, heard = _traced(tmp_path / "profile", [(10, 0), (50, 0)])
    profile.close()
    (event,) = heard.take()
    assert event.is_problem
