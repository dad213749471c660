"""Events about a session's progress: each is reported when it is noticed, once."""

import collections
import dataclasses
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from learner.report.status import EvaluationStatus
from learner.reports import ProgressReporter
from seedrl.config_io import load
from tests.learner.report.listener import Heard, Taken


class Watched:
    """A ProgressReporter of a session of fakes, with a clock of its own."""

    def __init__(
        self,
        target: float | None = 0.95,
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
            config.evaluation, target_return=target, patience_rounds=patience_rounds
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


def played(mean: float, *, is_confirmation: bool = False, updates: int = 1234) -> EvaluationStatus:
    return EvaluationStatus(
        mean_return=mean,
        episodes=20,
        env_steps=60,
        ended_env_steps=100,
        updates=updates,
        is_confirmation=is_confirmation,
    )


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
