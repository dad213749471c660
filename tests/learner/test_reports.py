"""Reports of a run: its state, what it starts from, why environments do not step, its progress."""

import collections
import dataclasses
import json
import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from learner import reports as reports_module
from learner.build import StartFrom
from learner.checkpoints.run_folder import RunFolder
from learner.report.env_servers import EnvServers
from learner.report.events import StandStill
from learner.report.status import EvaluationStatus, Slots, write_status
from learner.reports import ProgressReporter, Reports, report_start
from seedrl.checkpoints import Checkpoint
from seedrl.config_io import load, to_json
from seedrl.fields import with_fields
from tests.learner.report.listener import Heard, Taken
from tests.learner.report.test_terminal import STATUS, env_server, played
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


def test_the_balance_of_a_host_is_of_its_own_part_of_the_steps(reported: Reported) -> None:
    """Of two hosts an env server was busy for 125 % of the time."""
    reports, rate = reported.reports, 60.0
    shares = {"acting_waits_share": 0.2, "learning_waits_share": 0.5, "env_steps_per_second": rate}
    reports.values = {**shares, "env_step_ms": 10.0, "env_servers": 1.0}
    alone = reports._balance_in("training")
    reports._num_hosts = 2
    reports.values = {**reports.values, "env_steps_per_second": 2 * rate}
    assert alone[1] is not None and reports._balance_in("training") == alone


def test_an_env_server_with_more_environments_that_evaluate_is_not_slow(reported: Reported) -> None:
    reports = reported.reports
    servers = [
        dataclasses.replace(
            env_server(f"vm:{number}"),
            state="live",
            environments=training + evaluation,
            training_slots=training,
            evaluation_slots=evaluation,
            steps_per_second=100.0 * training + 7.0 * evaluation,
            training_steps_per_second=100.0 * training,
        )
        for number, (training, evaluation) in enumerate([(6, 16), (6, 16), (2, 20)])
    ]
    reports._env_servers = EnvServers(tuple(servers))
    assert reports._conditions().rates == {"vm:0": 100.0, "vm:1": 100.0, "vm:2": 100.0}


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
    os.utime(tmp_path, (2**33, 2**33))  # the clock has been set back since
    report_start(heard, StartFrom(saved), dataclasses.replace(config, environment=environment))
    (dropped, _) = heard.take()
    assert "its replay is dropped" in dropped.text and dropped.fields["age_seconds"] == 0
    serving = dataclasses.replace(config.serving, bind="unix:/here", token_file="t")
    changed = dataclasses.replace(config, seed=7, serving=serving)
    report_start(heard, StartFrom(saved), changed)
    _, event = heard.take()  # not of what is each session's own
    assert event.kind == "changed" and not event.is_problem
    assert event.fields == {"field": "seed", "before": "0", "now": "7"}
    for decay_steps in (0, 400_000, config.learning.total_steps):
        own = with_fields(config, {"agent.learning_rate_decay_steps": decay_steps})
        report_start(heard, StartFrom(), own)
    (event,) = heard.take()
    assert event.is_problem and "0 after 400,000 of 1,000,000" in event.text


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


# --- events about progress: each is reported when it is noticed, once ---


class Watched:
    """A ProgressReporter of a session of fakes, with a clock of its own."""

    def __init__(
        self,
        earlier: Sequence[EvaluationStatus] = (),
        patience_rounds: int = 0,
        steps: int = 100,
    ) -> None:
        self.now = 0.0
        self.heard = Heard()
        self.learning = SimpleNamespace(num_applied=0, num_skipped=0, num_stale=0)
        self.has_failed = False
        self.session: Any = SimpleNamespace(
            is_compiling=True,
            failed=SimpleNamespace(is_set=lambda: self.has_failed),
            acting=SimpleNamespace(training_steps=steps, rounds=collections.deque()),
            learning=self.learning,
        )
        config = load("cartpole_r2d2")
        evaluation = dataclasses.replace(
            config.evaluation, target_return=0.95, patience_rounds=patience_rounds
        )
        environment = dataclasses.replace(
            config.environment, metrics=("success", "sucess", "level")
        )
        self.reporter = ProgressReporter(
            dataclasses.replace(config, evaluation=evaluation, environment=environment),
            self.session,
            self.heard,
            lambda: self.now,
            earlier,
        )

    def look(self, now: float) -> list[Taken]:
        """The events of a look at that time."""
        self.now = now
        self.reporter.update()
        return self.heard.take()


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_compiling_ends_and_then_there_is_a_first_update(watched: Watched) -> None:
    assert watched.look(1.0) == []
    watched.session.is_compiling = False
    (compiled,) = watched.look(2.5)
    assert (compiled.kind, compiled.fields) == ("learning", {"seconds": 2.5})
    watched.learning.num_applied = 1
    (first,) = watched.look(3.0)
    assert "100 environment steps" in first.text and not first.is_problem
    watched.learning.num_applied = 2
    assert watched.look(4.0) == []


def test_rounds_of_evaluation_are_reported_with_their_outcome(watched: Watched) -> None:
    rounds = watched.session.acting.rounds
    rounds.extend([played(0.7), played(0.951), played(0.94, is_confirmation=True)])
    found = watched.look(1.0)
    assert {event.kind for event in found} == {"evaluation"}
    assert [event.fields["outcome"] for event in found] == ["below", "nominated", "below"]
    assert watched.reporter.last == played(0.94, is_confirmation=True)
    assert watched.reporter.best == played(0.951)
    rounds.append(played(0.96, is_confirmation=True))
    (confirmed,) = watched.look(2.0)
    assert (confirmed.fields["mean_return"], confirmed.fields["outcome"]) == (0.96, "confirmed")


def test_patience_counts_rounds_without_a_new_best_over_all_sessions() -> None:
    earlier = [played(0.1), played(0.5), played(0.4), played(0.5)]
    watched = Watched(earlier=earlier, patience_rounds=3)
    rounds = watched.session.acting.rounds

    def has_stalled(*means: float, is_confirmation: bool = False) -> bool:
        rounds.extend(played(mean, is_confirmation=is_confirmation) for mean in means)
        watched.reporter.update()
        return watched.reporter.has_stalled

    assert not has_stalled()
    assert not has_stalled(0.2, is_confirmation=True)  # no round of its own
    assert has_stalled(0.3)
    assert not has_stalled(0.6)
    assert not has_stalled(0.5, 0.5)
    assert has_stalled(0.6)
    assert not Watched(earlier=[*earlier, *earlier]).reporter.has_stalled


@pytest.mark.parametrize("name", ["num_skipped", "num_stale"])
def test_losses_are_reported_at_once_and_then_once_a_minute(watched: Watched, name: str) -> None:
    found = []
    for now, count in ((1.0, 0), (2.0, 3), (30.0, 5), (62.0, 5), (200.0, 5)):
        setattr(watched.learning, name, count)
        found += watched.look(now)
    assert [(event.is_problem, event.fields["number"]) for event in found] == [(True, 3), (True, 2)]


def test_skipped_updates_in_a_row_are_counted_until_one_is_finite(watched: Watched) -> None:
    for applied, skipped, in_a_row in ((1, 0, 0), (1, 99, 99), (2, 140, 0), (2, 141, 1)):
        watched.learning.num_applied, watched.learning.num_skipped = applied, skipped
        watched.look(1.0)
        assert watched.reporter.skipped_in_a_row == in_a_row
    watched.learning.num_skipped = 140 + 1000  # learning.max_skipped_updates: the run ends
    watched.look(2.0)
    watched.learning.num_applied = 3
    watched.look(3.0)
    assert watched.reporter.skipped_in_a_row == 1000


def test_metrics_that_no_episode_reports_are_named_once(watched: Watched) -> None:
    found = []
    for episodes, more in (
        (19, {"return/training": 1.0, "episode/success": 0.5}),
        (21, {}),
        (22, {"return/training": 1.0}),
        (23, {"return/training": 1.0}),
    ):
        ends = {"return/training_min": 1.0, "return/training_max": 1.0}
        watched.reporter.look_at_metrics({"episodes/training": episodes, **ends, **more})
        found.append(watched.heard.take())
    (event,) = found[2]
    assert event.is_problem and event.fields == {"names": ["level", "sucess"]}
    assert found[:2] == [[], []] and found[3] == []


def test_a_resumed_run_whose_episodes_are_all_the_best_there_are_is_not_reported() -> None:
    solved = dict.fromkeys(("return/training", "return/training_min", "return/training_max"), 500.0)
    values = {"env_steps": 50_000.0, "updates": 200.0, "episodes/training": 500.0} | solved
    values |= {"episode/success": 1.0, "episode/sucess": 1.0, "episode/level": 1.0}
    found = []
    for steps in (0, 40_000):  # of earlier sessions, which have seen other returns
        watched = Watched(steps=steps)
        for _ in range(10):
            watched.reporter.look_at_metrics(values)
        found.append([event.fields for event in watched.heard.take()])
    assert found == [[{"sign": "no_reward"}], []]


def test_environments_whose_episodes_do_not_end_are_reported_at_each_doubling(
    watched: Watched,
) -> None:
    found = []
    for steps in (4_999, 5_001, 7_000, 10_002, 12_000):
        watched.session.acting.unended_steps = {"training": steps, "evaluation": 0}.__getitem__
        watched.reporter.look_at_episodes()
        found += watched.heard.take()
    assert [(event.is_problem, event.fields["steps"]) for event in found] == [
        (True, 5_001),
        (True, 10_002),
    ]
    assert {event.fields["role"] for event in found} == {"training"}


def test_a_compilation_that_fails_is_not_reported_as_compiled(watched: Watched) -> None:
    watched.has_failed, watched.session.is_compiling = True, False
    assert watched.look(1.0) == []
