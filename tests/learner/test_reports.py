"""Reports of a run: its state, what it starts from, and why environments do not step."""

import dataclasses
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from learner import reports as reports_module
from learner.build import StartFrom
from learner.checkpoints.run_folder import RunFolder
from learner.report.env_servers import EnvServers
from learner.report.events import StandStill
from learner.report.status import Slots, write_status
from learner.reports import Reports, report_start
from seedrl.checkpoints import Checkpoint
from seedrl.config_io import load, to_json
from tests.learner.report.listener import Heard
from tests.learner.report.test_terminal import STATUS, env_server
from tests.patience import SECONDS, wait_until


class Reported:
    """Reports on a session of fakes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.evaluator = SimpleNamespace(is_confirming=False)
        self.progress: Any = SimpleNamespace(
            session=SimpleNamespace(
                acting=SimpleNamespace(training_steps=0, take_sample=lambda: None),
                learning=SimpleNamespace(updates=70),
                evaluator=self.evaluator,
            ),
            last=None,
            best=None,
            is_compiling=True,
        )
        self.run_folder = RunFolder(folder)
        self.reports = Reports(load("cartpole_r2d2"), "mine", self.run_folder, None)

    def close(self) -> None:
        self.reports.close()
        self.run_folder.close()

    def saved(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "status.json").read_text())
        return found


@pytest.fixture
def reported(tmp_path: Path) -> Iterator[Reported]:
    made = Reported(tmp_path)
    yield made
    made.close()


def test_states_follow_one_another_and_each_has_its_reason_to_wait(reported: Reported) -> None:
    reports = reported.reports
    found = []

    def note() -> None:
        status = reports.now()
        found.append((status.state, status.waiting_for))

    note()
    reports.address = "unix:/there"
    note()
    reports._env_servers = EnvServers(
        (env_server("vm:1"),), Slots(total=32, live=32), Slots(total=100, live=1)
    )
    note()  # there is no session yet
    reports.progress = reported.progress
    note()
    reported.progress.is_compiling = False
    note()
    reported.evaluator.is_confirming = True
    note()
    reports.end("all steps taken")
    note()
    ratio = "acting waits until learning has caught up"
    assert found == [
        ("starting", "starting"),
        ("waiting", "no env server is connected"),
        ("starting", "starting"),
        ("compiling", "compiling"),
        ("training", ratio),
        ("evaluating", ratio),
        ("stopping", ""),
    ]
    reports.close()
    saved = reported.saved()
    assert (saved["state"], saved["reason"]) == ("finished", "all steps taken")


def test_a_stand_still_is_reported_ever_more_rarely_and_its_end_once() -> None:
    heard: Any = Heard()
    still = StandStill(heard, steps=0, now=0.0)
    for now, steps in ((5, 100), (14, 100), (15, 100), (24, 100), (25, 100), (44, 100), (45, 100)):
        still.look(steps, float(now), "no env server is connected")
    assert [(each.is_problem, each.fields["seconds"]) for each in heard.take()] == [
        (True, 10.0),
        (True, 20.0),
        (True, 40.0),
    ]
    for steps in (101, 102):
        still.look(steps, 84.5, "")
    ((kind, _, is_problem, fields),) = heard.take()
    assert (kind, is_problem, fields) == ("waiting", False, {"seconds": 79.5, "waiting_for": ""})
    # Later ones for the same reason are no news until they last longer; another reason is.
    still.look(102, 160.0, "no env server is connected")
    assert not heard.take()
    still.look(102, 160.0, "acting waits until learning has caught up")
    still.look(102, 164.5, "no env server is connected")
    assert [each.fields["seconds"] for each in heard.take()] == [75.5, 80.0]


def test_the_file_is_strict_json_and_is_replaced_as_a_whole(tmp_path: Path) -> None:
    for env_steps in (1, 2):
        status = dataclasses.replace(STATUS, env_steps=env_steps, metrics={"loss": float("nan")})
        write_status(tmp_path, status)
    text = (tmp_path / "status.json").read_text()
    found = json.loads(text, parse_constant=lambda name: 1 / 0)
    assert (found["env_steps"], found["metrics"]["loss"]) == (2, None)
    assert found["env_servers"][0]["hung_groups"] == []
    assert [path.name for path in tmp_path.iterdir()] == ["status.json"]


def test_a_session_reports_what_it_starts_from(tmp_path: Path) -> None:
    config = load("cartpole_r2d2")
    heard: Any = Heard()
    for more in ({}, {"replay_indices": [{}]}):
        meta = {"config": to_json(config), "env_steps": 90_000, **more}
        saved = Checkpoint(4540, tmp_path, meta)
        report_start(heard, StartFrom(saved), config)
    best = Checkpoint(3, tmp_path, {"evaluation": {"mean_return": 7.5, "episodes": 20}})
    report_start(heard, StartFrom(None, (best, {})), config)
    report_start(heard, StartFrom(), config)
    report_start(heard, StartFrom(), config, earlier_sessions=1)
    empty, restored, initialized, lost = heard.take()
    assert lost.is_problem and lost.fields == {"path": None, "updates": 0}
    assert {event.kind for event in (empty, restored, initialized)} == {"resumed"}
    assert "replay starts empty" in empty.text and "its replay is restored" in restored.text
    assert (empty.fields["updates"], empty.fields["env_steps"]) == (4540, 90_000)
    assert "best parameters (7.5" in initialized.text
    environment = dataclasses.replace(config.environment, arguments='{"a": 1}')
    report_start(heard, StartFrom(saved), dataclasses.replace(config, environment=environment))
    assert "its replay is dropped" in heard.take()[0].text
    serving = dataclasses.replace(config.serving, bind="unix:/here", token_file="t")
    changed = dataclasses.replace(config, seed=7, serving=serving)
    report_start(heard, StartFrom(saved), changed)
    _, event = heard.take()  # not of what is each session's own
    assert event.kind == "changed" and not event.is_problem
    assert event.fields == {"field": "seed", "before": "0", "now": "7"}


def test_a_status_that_cannot_be_made_does_not_end_the_run(
    reported: Reported, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports_module, "INTERVAL_SECONDS", 0.01)

    class BrokenHub:
        has_been_asked = threading.Event()

        def env_servers(self) -> EnvServers:
            self.has_been_asked.set()
            raise RuntimeError("a defect of ours")

    reported.reports.hub = hub = BrokenHub()  # type: ignore[assignment]
    assert hub.has_been_asked.wait(SECONDS)
    reported.reports.hub = None
    since, path = time.time(), reported.folder / "status.json"
    wait_until(lambda: path.exists() and reported.saved()["time_seconds"] > since)
    assert "a defect of ours" in caplog.text
