"""When a run is over, and why."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from learner.end_of_run import (
    EndOfRun,
    Kind,
    LastRound,
    common_end,
    end_of_run,
    ended_earlier,
    is_over,
)
from learner.multihost.agreement import Hosts
from learner.processes.stop import StopRequest
from learner.report.status import EvaluationStatus
from seedrl import config_io
from seedrl.checkpoints import Checkpoint
from seedrl.config import Config, LearningConfig
from seedrl.config_io import to_json
from seedrl.errors import ConfigError
from seedrl.exit_codes import ExitCode
from seedrl.fields import with_fields
from tests.learner.multihost.linked import linked
from tests.learner.report.listener import Heard

_TOTAL_STEPS = 100
_LEARNING = LearningConfig(total_steps=_TOTAL_STEPS, max_seconds=60.0, max_skipped_updates=10)
_CONFIG = dataclasses.replace(config_io.load("cartpole_r2d2"), learning=_LEARNING)
_SCORE = SimpleNamespace(mean=475.0, returns=(475.0,))


def test_the_first_reason_that_holds_ends_a_run() -> None:
    mistake = ConfigError("a loss that is a vector")
    for failure, stops, skipped, confirmed, steps, expected in (
        (None, False, 9, None, 99, None),
        (None, False, 9, None, 100, "all_steps"),
        (None, False, 9, _SCORE, 100, "confirmed"),
        (None, False, 10, _SCORE, 100, "not_finite"),
        (None, True, 10, _SCORE, 100, "stopped"),
        (MemoryError(), True, 10, _SCORE, 100, "failed"),
        (mistake, True, 10, _SCORE, 100, "mistake"),
    ):
        session: Any = SimpleNamespace(
            failed=SimpleNamespace(is_set=lambda failure=failure: failure is not None),
            failure=failure,
            evaluator=SimpleNamespace(confirmed=confirmed, is_confirming=False),
            acting=SimpleNamespace(training_steps=steps),
        )
        stop = StopRequest()
        if stops:
            stop.set("SIGTERM")
        own = (session, stop, _CONFIG)
        found = end_of_run(*own, skipped_in_a_row=skipped, elapsed_seconds=59.9)
        assert (found and found.kind) == expected
        late = end_of_run(*own, skipped_in_a_row=skipped, elapsed_seconds=60.0)
        assert late and late.kind == (expected or "out_of_time")
        stalled = end_of_run(*own, skipped_in_a_row=skipped, has_stalled=True)
        assert stalled and stalled.kind == (expected or "no_improvement")


def _ended(
    config: Config,
    /,
    *rounds: EvaluationStatus,
    saved: float | None = None,
    is_alone: bool = True,
    **meta: Any,
) -> ExitCode | None:
    meta = {"config": to_json(_config(saved)), "env_steps": 7000, "totals": {}, **meta}
    return ended_earlier(Checkpoint(30, Path(), meta), config, rounds, is_alone=is_alone)


def _round(updates: int, mean: float = 0.0, env_steps: int = 7000) -> EvaluationStatus:
    return EvaluationStatus(
        mean_return=mean, episodes=20, env_steps=env_steps, ended_env_steps=7000, updates=updates
    )


def test_a_run_that_has_confirmed_its_target_is_over() -> None:
    confirmed = {"params_updates": 30}
    for meta, saved, now, expected in (
        (confirmed, 0.9, 0.9, ExitCode.OK),
        ({}, 0.9, 0.9, None),
        (confirmed, 0.9, 1.0, None),  # a higher target
        (confirmed, None, 0.9, None),  # trained on since
        (confirmed, None, None, None),
    ):
        assert _ended(_config(now), saved=saved, **meta) == expected
    harder = with_fields(_config(0.9), {"environment.arguments": '{"length": 0.9}'})
    assert _ended(harder, saved=0.9, **confirmed) is None
    # The file of a class may have moved since.
    moved = to_json(_config(0.9)).replace("seedrl.agents.r2d2:R2D2Config", "/gone/own.py:Own")
    assert _ended(_config(0.9), config=moved, **confirmed) == ExitCode.OK


def test_a_run_that_has_taken_its_steps_is_over_once_its_last_parameters_are_scored() -> None:
    done = _config(None, total_steps=7000)
    assert _ended(_config(None, total_steps=7001), _round(30)) is None
    assert _ended(done, _round(30)) == ExitCode.OK
    assert _ended(_config(475.0, total_steps=7000), _round(30)) == ExitCode.TARGET_MISSED
    # Of earlier parameters, and of later ones, which were not saved: a round is owed.
    for rounds in ([], [_round(29)], [_round(30, env_steps=7001)]):
        assert _ended(done, *rounds) is None
        assert _ended(done, *rounds, is_alone=False) == ExitCode.OK  # which play none
    unmeasured = dataclasses.replace(done.serving, evaluation_slots=0)
    assert _ended(dataclasses.replace(done, serving=unmeasured)) == ExitCode.OK


def test_a_run_whose_time_or_patience_is_over_stays_so() -> None:
    limited = _config(None, max_seconds=60.0)
    assert _ended(limited, totals={"elapsed_seconds": 59.0}) is None
    assert _ended(limited, totals={"elapsed_seconds": 60.0}) == ExitCode.OK
    config = _config(475.0)
    evaluation = dataclasses.replace(config.evaluation, patience_rounds=2)
    config = dataclasses.replace(config, evaluation=evaluation)
    assert _ended(config, _round(10, 5.0), _round(20, 4.0)) is None
    assert _ended(config, _round(10, 5.0), _round(20, 4.0), _round(25, 5.0)) == 1
    confirmation = dataclasses.replace(_round(20, 4.0), is_confirmation=True)
    assert _ended(config, _round(10, 5.0), _round(20, 4.0), confirmation) is None


def test_the_hint_names_a_learning_rate_that_would_stay_0(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, is_named in ("pendulum_sac", False), ("breakout_ppo", True):
        config = with_fields(config_io.load(name), {"evaluation.target_return": None})
        steps = config.learning.total_steps
        ended = _ended(config, is_alone=False, config=to_json(config), env_steps=steps)
        assert ended == ExitCode.OK
        assert ("--agent.learning-rate-decay-steps" in capsys.readouterr().err) == is_named


def _config(target: float | None, **learning: Any) -> Config:
    config = config_io.load("cartpole_r2d2")
    return dataclasses.replace(
        config,
        evaluation=dataclasses.replace(config.evaluation, target_return=target),
        learning=dataclasses.replace(config.learning, **learning),
    )


def test_among_others_it_is_over_when_all_have_agreed() -> None:
    with linked(2) as (first, _):
        hosts = Hosts(first)
        assert not is_over(EndOfRun("all_steps", "all taken"), hosts)
        assert hosts.wants_end == ("all_steps", "all taken")
        assert not hosts.can_save
        hosts.end = ["confirmed", "target 475 confirmed"]  # as JSON brings it
        assert is_over(None, hosts)
        assert common_end(hosts) == EndOfRun("confirmed", "target 475 confirmed")
        assert hosts.can_save


@pytest.mark.parametrize("kind", ["failed", "mistake"])
def test_what_ends_one_host_asks_nobody_and_saves_nothing(kind: Kind) -> None:
    with linked(2) as (first, _):
        hosts = Hosts(first)
        assert is_over(EndOfRun(kind, "its error"), hosts)
        assert (common_end(hosts), hosts.can_save) == (None, False)


class Ending:
    """A session whose steps are all taken, with a last round by a clock of its own."""

    def __init__(self, *, slots: int = 1, newest: int | None = None) -> None:
        self.now, self.heard = 0.0, Heard()
        self.channel = SimpleNamespace(is_complete=False, last=())
        self.evaluator = SimpleNamespace(played_version=3, is_running=True)
        self.session: Any = SimpleNamespace(
            learning=SimpleNamespace(updates=9),
            evaluator=self.evaluator,
            system=SimpleNamespace(
                hosts=Hosts(),
                channel=self.channel,
                geometry=SimpleNamespace(evaluation_slots=slots),
            ),
            has_live_evaluation=True,
        )
        played: Any = None if newest is None else SimpleNamespace(updates=newest)
        self.round = LastRound(self.session, 30.0, self.heard, played, lambda: self.now)


def test_a_run_ends_once_its_last_parameters_have_a_score() -> None:
    run = Ending()
    assert not run.round.is_over() and run.channel.is_complete
    run.evaluator.is_running = False  # the round before has ended
    assert not run.round.is_over()
    run.channel.last = [SimpleNamespace(version=9)]
    assert not run.round.is_over()
    run.evaluator.is_running, run.evaluator.played_version = True, 9
    assert not run.round.is_over()
    run.evaluator.is_running = False
    assert run.round.is_over()
    (begun,) = run.heard.take()
    assert begun.kind == "evaluation" and not begun.is_problem


@pytest.mark.parametrize(("is_live", "seconds"), [(True, 30.0), (False, 10.0)])
def test_a_last_round_that_does_not_end_is_given_up_in_one_line(
    is_live: bool, seconds: float
) -> None:
    run = Ending()
    run.session.has_live_evaluation = is_live
    run.round.is_over()
    run.now = seconds - 0.1
    assert not run.round.is_over()
    run.now = seconds
    assert run.round.is_over() and run.round.is_over()
    assert [event.is_problem for event in run.heard.take()] == [False, True]


@pytest.mark.parametrize(("slots", "newest"), [(0, None), (1, 9)])
def test_nothing_is_played_without_slots_or_a_second_time(slots: int, newest: int | None) -> None:
    run = Ending(slots=slots, newest=newest)
    assert run.round.is_over() and not run.channel.is_complete
    assert run.heard.take() == []
