"""What a session reaches is said when it is noticed, once."""

import collections
import dataclasses
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from learner.acting.evaluator import Confirmation
from learner.reporting.status import EvaluationStatus
from learner.session.announcements import Announcements, StandStill
from seedrl.config_file import load


class Watched:
    """Announcements of a session of fakes, with a clock of its own."""

    def __init__(
        self, target: float | None = 0.95, earlier: Sequence[EvaluationStatus] = ()
    ) -> None:
        self.now = 0.0
        self.said: list[tuple[str, str]] = []
        self.session: Any = SimpleNamespace(
            is_compiling=True,
            begins_untrained=True,
            acting=SimpleNamespace(
                training_steps=100,
                rounds=collections.deque(),
                totals=SimpleNamespace(measured_episodes=0, absent_metrics=("sucess", "level")),
            ),
            learning=SimpleNamespace(
                updates=7,
                num_applied=0,
                num_skipped=0,
                num_stale=0,
                num_empty_shards=0,
                sequences_of_shards=lambda: [3, 4, 0, 0],
            ),
            evaluator=SimpleNamespace(confirmation=None),
        )
        config = load("cartpole_r2d2")
        evaluation = dataclasses.replace(config.evaluation, target_return=target)
        listener: Any = SimpleNamespace(say=self._say)
        config = dataclasses.replace(config, evaluation=evaluation)
        self.announcements = Announcements(
            config, self.session, listener, lambda: self.now, earlier
        )

    def _say(self, kind: str, text: str, **fields: Any) -> None:
        self.said.append((kind, text))

    def look(self, now: float) -> list[tuple[str, str]]:
        """What is said at that time."""
        self.now = now
        self.said = []
        self.announcements.look()
        return self.said


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_compiling_ends_and_then_there_is_a_first_update(watched: Watched) -> None:
    assert watched.look(1.0) == []
    watched.session.is_compiling = False
    assert watched.look(2.5) == [("compiled", "compiled in 2.5 s")]
    watched.session.learning.updates = 8  # under way, and it may be skipped
    assert watched.look(2.8) == []
    watched.session.learning.num_applied = 1
    watched.session.acting.training_steps = 2644
    assert watched.look(3.0) == [("first_update", "first update, at 2,644 environment steps")]
    watched.session.learning.num_applied = 2
    assert watched.look(4.0) == []


def test_devices_without_experience_are_said_with_the_first_update(watched: Watched) -> None:
    watched.session.is_compiling = False
    watched.look(1.0)
    watched.session.learning.num_applied, watched.session.learning.num_empty_shards = 1, 2
    (_, first), empty = watched.look(2.0)
    assert first.startswith("first update")
    assert empty == (
        "shards_empty",
        "learning without 2 of 4 devices: no experience has arrived for them (are there too few "
        "env servers for serving.training_slots?)",
    )
    assert watched.look(3.0) == []


def played(mean: float, *, is_confirmation: bool = False, episodes: int = 20) -> EvaluationStatus:
    return EvaluationStatus(
        mean_return=mean,
        episodes=episodes,
        env_steps=100,
        updates=1234,
        is_confirmation=is_confirmation,
    )


def test_rounds_of_evaluation_are_told_with_what_they_mean(watched: Watched) -> None:
    rounds = watched.session.acting.rounds
    rounds.append(played(0.7))
    rounds.append(played(0.951))
    rounds.append(played(0.94, is_confirmation=True, episodes=100))
    assert watched.look(1.0) == [
        ("evaluation", "evaluation: 0.700 over 20 episodes, by the parameters of update 1,234"),
        ("evaluation", "evaluation: 0.951 over 20 episodes, by the parameters of update 1,234"),
        (
            "nominated",
            "target 0.95 reached: fresh episodes of the same parameters must confirm it",
        ),
        (
            "evaluation",
            "confirmation failed: 0.940 over 100 episodes, by the parameters of update 1,234",
        ),
    ]
    assert watched.announcements.last == played(0.94, is_confirmation=True, episodes=100)
    assert watched.announcements.best == played(0.951)
    rounds.append(played(0.96, is_confirmation=True, episodes=100))
    assert watched.look(2.0) == [("confirmed", "target 0.95 confirmed: 0.960 over 100 episodes")]


def test_a_confirmation_is_spoken_of_every_ten_seconds_with_advice_once(watched: Watched) -> None:
    def confirming(now: float, *returns: float, slots: int = 3) -> list[tuple[str, str]]:
        watched.session.evaluator.confirmation = Confirmation(returns, 100, slots)
        return watched.look(now)

    watched.session.is_compiling = True
    assert confirming(1.0) == confirming(10.9) == []
    advice = (
        ", on 3 evaluation slots: more are faster (serving.evaluation_slots, and env servers that "
        "offer as many environments)"
    )
    assert confirming(11.0) == [("confirming", f"confirming: 0 of 100 episodes{advice}")]
    assert confirming(20.9, 500.0) == []
    assert confirming(21.1, 500.0, 497.0) == [
        ("confirming", "confirming: 2 of 100 episodes, mean 498.5")
    ]
    watched.session.evaluator.confirmation = Confirmation((500.0,), 100, 2, num_dropped=1)
    assert watched.look(31.2) == [
        (
            "confirming",
            "confirming: 1 of 100 episodes, mean 500.0; 1 are played again, for the env servers "
            "that played them left",
        )
    ]
    watched.session.evaluator.confirmation = None
    assert watched.look(40.0) == []
    assert confirming(41.0, slots=11) == []
    assert confirming(51.0, 1.0, slots=11) == [
        ("confirming", "confirming: 1 of 100 episodes, mean 1.000")
    ]


def test_without_a_target_nothing_is_nominated() -> None:
    watched = Watched(target=None)
    watched.session.acting.rounds.append(played(1e6))
    assert [kind for kind, _ in watched.look(1.0)] == ["evaluation"]


def test_a_stand_still_is_said_ever_more_rarely_and_its_end_once() -> None:
    said: list[tuple[str, str]] = []
    listener: Any = SimpleNamespace(say=lambda kind, text, **fields: said.append((kind, text)))
    still = StandStill(listener, steps=0, now=0.0)
    for now, steps in ((5, 100), (14, 100), (15, 100), (24, 100), (25, 100), (44, 100), (45, 100)):
        still.look(steps, float(now), lambda: "no env server is connected")
    assert said == [
        ("waiting", f"0 steps/s for {seconds} s: no env server is connected")
        for seconds in (10, 20, 40)
    ]
    said.clear()
    for steps in (101, 102):
        still.look(steps, 84.5, lambda: "")
    assert said == [("steps_again", "environments step again after 80 s")]


def test_skipped_updates_are_told_once_a_minute(watched: Watched) -> None:
    watched.session.learning.num_applied = 1
    for now, skipped in ((1.0, 0), (2.0, 3), (30.0, 5), (62.0, 5), (200.0, 5)):
        watched.now, watched.session.learning.num_skipped = now, skipped
        watched.announcements.reported()
    assert [text.split(" updates")[0] for _, text in watched.said] == ["3", "2"]
    assert "a loss, gradient, step or running moment was not finite" in watched.said[0][1]


def test_sequences_that_were_too_old_are_told_once_a_minute(watched: Watched) -> None:
    for now, stale in ((1.0, 0), (2.0, 3), (30.0, 5), (62.0, 5), (200.0, 5)):
        watched.now, watched.session.learning.num_stale = now, stale
        watched.announcements.reported()
    assert [text.split(" sequences")[0] for _, text in watched.said] == ["3", "2"]
    assert "replay.max_lag_updates" in watched.said[0][1]


def test_many_skipped_updates_in_a_row_are_told_once_until_one_is_finite(watched: Watched) -> None:
    learning = watched.session.learning
    watched.session.is_compiling = False
    learning.num_applied = 1
    watched.look(1.0)
    learning.num_skipped = 99
    assert watched.look(2.0) == []
    learning.num_skipped = 100
    expected = (
        "updates_skipped",
        "100 updates in a row were skipped, for a loss, gradient, step or running moment was "
        "not finite; the run ends with 1,000 (learning.max_skipped_updates)",
    )
    assert watched.look(3.0) == [expected]
    learning.num_skipped = 500
    assert watched.look(4.0) == []
    assert watched.announcements.skipped_in_a_row == 500
    learning.num_applied, learning.num_skipped = 2, 540
    assert watched.look(5.0) == [] and watched.announcements.skipped_in_a_row == 0
    learning.num_skipped = 640
    assert watched.look(6.0) == [expected]


def test_a_session_that_skips_all_of_its_updates_says_at_once_that_it_learns_nothing(
    watched: Watched,
) -> None:
    learning = watched.session.learning
    learning.num_skipped = 9
    assert watched.look(1.0) == []
    learning.num_skipped = 11
    ((kind, text),) = watched.look(1.1)
    assert kind == "updates_skipped"
    assert text.startswith("nothing is learned: all of the first 11 updates were skipped")
    assert watched.look(1.2) == []
    learning.num_skipped = 12
    watched.announcements.reported()
    assert watched.said == []  # that minute is not over


def test_metrics_that_no_episode_reports_are_named_once(watched: Watched) -> None:
    acting = watched.session.acting.totals
    acting.measured_episodes = 19
    assert watched.look(1.0) == []
    acting.measured_episodes = 21
    assert watched.look(2.0) == [
        (
            "metrics_absent",
            "environment.metrics: none of 21 episodes had 'sucess' or 'level' in its last info; "
            "`seedrl check-env` names the numbers that are there",
        )
    ]
    assert watched.look(3.0) == []


def test_metrics_that_are_reported_are_not_worth_a_word(watched: Watched) -> None:
    totals = watched.session.acting.totals
    totals.measured_episodes, totals.absent_metrics = 50, ()
    assert watched.look(1.0) == []


def test_a_target_that_is_confirmed_without_an_update_is_remarked_on(watched: Watched) -> None:
    watched.session.acting.rounds.append(
        dataclasses.replace(played(0.96, is_confirmation=True), updates=0)
    )
    ((_, text),) = watched.look(1.0)
    assert "by parameters that no update had changed" in text


def test_parameters_of_another_run_are_no_reason_for_a_remark(watched: Watched) -> None:
    watched.session.begins_untrained = False  # --init-from
    first = dataclasses.replace(played(0.96, is_confirmation=True), updates=0)
    watched.session.acting.rounds.append(first)
    assert watched.look(1.0) == [("confirmed", "target 0.95 confirmed: 0.960 over 20 episodes")]


def test_rounds_of_earlier_sessions_are_those_of_the_run() -> None:
    earlier = [played(0.5), played(0.9), played(0.7)]
    watched = Watched(earlier=earlier)
    assert watched.said == []
    assert (watched.announcements.last, watched.announcements.best) == (earlier[2], earlier[1])
